"""Plans that publish every site's means: what a simulation tells, and that the largest of them can be masked."""

import math
from pathlib import Path

import numpy as np
import pytest

from fedfair.aggregation.loss_histogram import HistogramSpec, rounded_losses
from fedfair.aggregation.masked_encoding import header_parts, sum_shapes
from fedfair.aggregation.masking_terms import guarantee
from fedfair.aggregation.model_layout import Layout, LayoutEntry
from fedfair.aggregation.sum_kinds import sum_specs
from fedfair.ids import ParticipantId
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan
from fedfair.plan.sections import MAX_SITE_MEANS
from fedfair.results.document import to_json
from fedfair.secagg.shape import MAX_HEADER_VALUES
from fedfair.simulation.backend import Engine
from fedfair.simulation.simulate import SimulationOutcome, simulate_sites
from fedfair.statistics.table import Purpose
from fedfair.tables.dataset import Dataset, Splits
from tests import plans

SIZES = {"a": 40, "b": 30, "c": 7, "d": 3}


def make_plan(names: tuple[str, ...] = tuple(SIZES), **evaluation: object) -> Plan:
    return plans.parsed(
        names,
        training={"rounds": 2, "batch_size": 8, "precision": "fp64", "device": "cpu"},
        evaluation={"every": 1, "bins": 8, "site_means": True, **evaluation},
    )


def simulated(plan: Plan, engine: Engine = "loop") -> SimulationOutcome:
    source, schema = np.random.default_rng(5), FeatureSchema((3,), 2)
    sites = {
        ParticipantId(name): Splits(Dataset(source.normal(size=(size, 3)), source.integers(0, 2, size), schema))
        for name, size in SIZES.items()
    }
    return simulate_sites(plan, sites, Path(), engine=engine)


@pytest.mark.parametrize("engine", ["loop", "vectorised"])
def test_a_simulation_tells_what_a_deployment_of_its_plan_would(engine: Engine) -> None:
    outcome = simulated(make_plan(min_group=5), engine)
    told = to_json(outcome.result)["collaborators"]
    assert isinstance(told, dict)
    # The three people of d are too few to be told of, and without c whoever subtracts would be left with them.
    assert (told["c"], told["d"]) == (None, None)
    for name in ("a", "b"):
        losses = outcome.losses[ParticipantId(name)]["train"]
        # Sums of at most 40 rounded losses in another order, and masks play no part.
        values = rounded_losses(losses.values, HistogramSpec(8, 8 * math.log(2)))
        assert told[name] == {
            "n": SIZES[name],
            "mean": pytest.approx(values.mean(), rel=1e-12),
            "accuracy": pytest.approx(losses.correct.mean(), rel=1e-12),
        }
    everything = to_json(simulated(make_plan(min_group=1), engine).result)["collaborators"]
    assert isinstance(everything, dict)
    assert [everything[name]["n"] for name in SIZES] == list(SIZES.values())


def test_rows_change_nothing_but_what_is_said_of_single_sites() -> None:
    asked, unasked = simulated(make_plan()), simulated(make_plan(site_means=False))
    for split, sums in asked.evaluation.splits.items():
        assert sums.model_copy(update={"sites": None}) == unasked.evaluation.splits[split]
        assert sums.sites is not None
        assert 0 < sum(sums.sites.values()) <= sums.n
    told = to_json(asked.result)["collaborators"]
    assert {name: site["n"] for name, site in told.items() if site} == asked.evaluation.splits["train"].sites
    assert asked.result.train == unasked.result.train
    assert {name: site["n"] for name, site in to_json(unasked.result)["collaborators"].items()} == SIZES


def test_the_largest_plan_fits_a_masked_header_and_more_sites_are_refused() -> None:
    names = tuple(f"site-{number}" for number in range(MAX_SITE_MEANS))
    plan, schema = make_plan(names, bins=4096), FeatureSchema((2,), 64, (0, 1))
    layout = Layout((LayoutEntry("weight", (3,)),), np.dtype(np.float32))
    counts = header_parts(plan, schema)[Purpose.EVALUATION].counts
    assert len(counts) == sum_specs(plan, layout, schema)[Purpose.EVALUATION].header_length
    assert counts[-9:].tolist() == [True, True, False] * 3
    length = sum_shapes(plan, layout, schema)["evaluation"].header_length
    # Twelve words a site: two counts and two limbs of a real number for each of three splits.
    assert length == 49173 + 12 * MAX_SITE_MEANS <= MAX_HEADER_VALUES
    names = tuple(f"site-{number}" for number in range(MAX_SITE_MEANS + 1))
    with pytest.raises(
        ValueError, match="is true for 1001 collaborators, the sum of an evaluation has room for 1000"
    ):
        make_plan(names)
    make_plan(names, site_means=False)
    asked, unasked = guarantee(make_plan()), guarantee(make_plan(site_means=False))
    told = "evaluation.site_means: true tells the aggregator every site's own records, loss and accuracy"
    assert asked == f"{unasked}; but {told}"
