"""Private steps of all sites at once against the loop, which is tested against the slow obvious version."""

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch

from fedfair.aggregation.requests import FeatureScaling, GlobalModel, SumRequest
from fedfair.aggregation.running_sum import Totals
from fedfair.aggregation.sum_kinds import sum_specs
from fedfair.errors import LocalProtocolError, PrivacyError, TrainingError
from fedfair.ids import ParticipantId, RoundNumber
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan
from fedfair.privacy.releases import GaussianRelease, ReleaseLog
from fedfair.simulation.clients import Clients, LoopClients
from fedfair.simulation.simulate import simulate_sites
from fedfair.simulation.vectorised.private_clients import PrivateClients
from fedfair.statistics.table import Purpose
from fedfair.tables.dataset import Dataset, Splits
from fedfair.training.assembly import flat_model, local_steps
from fedfair.training.client import TrainingClient
from fedfair.training.dp_sgd import RecordProtection, simulated_protection
from tests import plans

COLUMNS, CLASSES = 4, 3
COUNTS = (30, 1, 12, 0, 5, 30)
Sites = Mapping[ParticipantId, Splits]


def make_sites(counts: tuple[int, ...] = COUNTS, bad: float | None = None) -> Sites:
    source, schema = np.random.default_rng(8), FeatureSchema((COLUMNS,), CLASSES, (0, 1))
    made = {}
    for place, count in enumerate(counts):
        features = source.normal(size=(count, COLUMNS)) * 3.0
        if bad is not None and count:
            features[0, 2] = bad
        data = Dataset(features, source.integers(0, CLASSES, count), schema)
        made[ParticipantId(f"site-{place}")] = Splits(data)
    return made


def plan_of(
    sites: Sites, *, hidden: tuple[int, ...] = (6,), privacy: dict[str, object] | None = None, **training: object
) -> Plan:
    model = {"name": "mlp", "hidden": list(hidden)} if hidden else {"name": "linear", "init": "random"}
    values = {"rounds": 3, "precision": "fp64", "device": "cpu", "batch_size": 4, "local_steps": 3, **training}
    return plans.parsed(
        list(sites), task={"model": model, "standardize": "none"},
        objective={"worst_group_size": 0.2, "tradeoff": 0.1}, training=values, evaluation={"bins": 16},
        privacy={"sample_level": {"noise_multiplier": 1.5, "clip": 0.7, **(privacy or {})}},
    )  # fmt: skip


class Both:
    """The same cohort twice, and what each of them wrote down."""

    def __init__(self, plan: Plan, sites: Sites, *, group_bytes: int | None = None) -> None:
        self.plan, schema = plan, next(iter(sites.values())).train.schema
        model = flat_model(plan, schema, torch.device("cpu"), Path())
        self.start = GlobalModel(model.vector(), 0.9)
        self.specs = sum_specs(plan, model.layout, schema)
        steps = local_steps(plan, model, schema)
        self.logs: list[dict[str, ReleaseLog]] = []
        loops = []
        for _ in range(2):
            self.logs.append({name: ReleaseLog() for name in sites})
            protections = {name: simulated_protection(plan, name, self.logs[-1][name]) for name in sites}
            loops.append(
                LoopClients(
                    {
                        name: TrainingClient(plan, name, splits, model, steps, protections[name])
                        for name, splits in sites.items()
                    }
                )
            )
        self.loop = loops[0]
        self.once = PrivateClients(plan, sites, model, protections, loops[1], group_bytes=group_bytes)

    def totals(self, cohort: Clients, purpose: Purpose = Purpose.TRAINING, attempt: int = 1) -> Totals:
        request = SumRequest(purpose, RoundNumber(2), attempt, self.specs[purpose])
        return cohort.totals(request, self.start)

    def check(self) -> None:
        for attempt in (1, 2):
            alone, together = (self.totals(cohort, attempt=attempt) for cohort in (self.loop, self.once))
            # Sums of at most 30 records and 6 sites in fp64, with noise of a few units.
            np.testing.assert_allclose(together.body, alone.body, rtol=1e-10, atol=1e-11)
            np.testing.assert_allclose(together.header, alone.header, rtol=1e-10, atol=1e-11)
            assert together.contributors == alone.contributors
        written = [{name: log.releases for name, log in logs.items()} for logs in self.logs]
        assert written[0] == written[1]


@pytest.mark.parametrize("clipping", ["before_weighting", "joint"])
@pytest.mark.parametrize("hidden", [(), (6,), (6, 5)])
def test_a_round_of_all_sites_at_once_is_the_loops(hidden: tuple[int, ...], clipping: str) -> None:
    sites = make_sites()
    Both(plan_of(sites, hidden=hidden, privacy={"clipping": clipping, "threshold_scale": 0.3}), sites).check()


@pytest.mark.parametrize(
    "training",
    [
        {"algorithm": "fedavg"},
        {"local_epochs": 2, "local_steps": 1},  # every site makes another number of steps
        {"batch_size": "full"},
        {"batch_size": 1, "local_steps": 6},  # where most samples are empty
        {"weights": "uniform", "threshold_learning_rate": 0.7},
    ],
)
def test_every_kind_of_round_is_the_loops(training: dict[str, object]) -> None:
    sites = make_sites()
    Both(plan_of(sites, **training), sites).check()


@pytest.mark.parametrize("gradients", ["hooks", "ghost"])
def test_the_loops_other_ways_give_the_same(gradients: str) -> None:
    sites = make_sites()
    Both(plan_of(sites, privacy={"gradients": gradients}), sites).check()


@pytest.mark.parametrize("bad", [math.nan, 1e200])
def test_a_record_that_is_no_number_is_left_out_of_its_sample(bad: float) -> None:
    # It is the first of its site, and so also what smaller samples are padded with.
    sites = make_sites(bad=bad)
    both = Both(plan_of(sites, batch_size=10), sites)
    both.check()
    assert np.isfinite(both.totals(both.once).body).all()


def test_evaluations_and_whole_simulations_are_the_loops() -> None:
    sites = make_sites()
    both = Both(plan_of(sites), sites)
    alone, together = (both.totals(cohort, Purpose.EVALUATION) for cohort in (both.loop, both.once))
    assert alone.header.tobytes() == together.header.tobytes()
    assert [sorted(found) for found in both.once.last_losses] == [sorted(found) for found in both.loop.last_losses]
    plan = plan_of(sites)
    alone, together = (simulate_sites(plan, sites, Path(), engine=engine) for engine in ("loop", "vectorised"))
    np.testing.assert_allclose(together.model.vector, alone.model.vector, rtol=1e-9, atol=1e-10)
    assert together.result.privacy == alone.result.privacy
    Both(plan_of(sites), sites, group_bytes=1).check()


def test_features_are_scaled_for_both_engines() -> None:
    sites = make_sites()
    plan = plan_of(sites)
    both = Both(plan.model_copy(update={"task": plan.task.model_copy(update={"standardize": "secure"})}), sites)
    scaling = FeatureScaling(np.array([0.5, -1.0]), np.array([2.0, 4.0]))
    for cohort in (both.loop, both.once):
        cohort.apply_scaling(FeatureScaling(np.zeros(2), np.ones(2)))
    before = [both.totals(cohort).body for cohort in (both.loop, both.once)]
    for cohort in (both.loop, both.once):
        cohort.apply_scaling(scaling)
    both.check()
    assert not np.allclose(both.totals(both.once).body, before[1])


def test_a_release_that_may_not_happen_ends_the_round_before_anything_is_drawn() -> None:
    sites, drawn = make_sites((5, 6)), []

    def entropy(*words: str | int) -> int:
        drawn.append(words)
        return 0

    def refuse(release: GaussianRelease) -> None:
        raise PrivacyError(f"the budget allows no {release.purpose}")

    both = Both(plan_of(sites), sites)
    both.once._protections = [RecordProtection(entropy, refuse)] * 2
    with pytest.raises(PrivacyError, match="allows no training"):
        both.totals(both.once)
    assert drawn == []


def test_a_model_that_left_the_finite_numbers_and_missing_scalings_are_named() -> None:
    sites = make_sites((5, 6))
    both = Both(plan_of(sites, learning_rate=1e308), sites)
    with pytest.raises(TrainingError, match="NaN or infinite"):
        both.totals(both.once)
    both = Both(plan_of(sites), sites)
    both.once._pool = None
    with pytest.raises(LocalProtocolError, match="scaling has not arrived"):
        both.totals(both.once)
