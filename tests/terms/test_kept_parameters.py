"""Parameters that sites keep to themselves: what travels, what stays, and a slow version to compare with."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch.nn import functional

import fedfair
from fedfair.aggregation.requests import GlobalModel, SumRequest
from fedfair.aggregation.spec import SumSpec
from fedfair.errors import PlanError, StateError
from fedfair.ids import ParticipantId, RoundNumber
from fedfair.plan.derived import returned_output
from fedfair.plan.schema import Plan
from fedfair.simulation.simulate import SimulationOutcome, simulate_sites
from fedfair.statistics.table import Purpose
from fedfair.tables.dataset import Splits
from fedfair.tables.source import load_federation
from fedfair.terms.at_sites import AddedChange
from fedfair.terms.kept import CountedVariates, Variate, VariatesInMemory
from fedfair.terms.kept_parameters.site import KeptParameters
from fedfair.training.assembly import flat_model
from fedfair.training.client import TrainingClient
from tests.plans import parsed

HEAD = {"keep": ["output.*"]}
TRAINING = {
    "algorithm": "fedavg", "rounds": 3, "local_steps": 2, "batch_size": "full", "precision": "fp64",
    "learning_rate": 0.05, "parameters": HEAD,
}  # fmt: skip
TASK = {
    "data": "breast-cancer", "model": {"name": "mlp", "hidden": [4]}, "partition": {"scheme": "contiguous"},
    "standardize": "secure", "test_fraction": 0.25,
}  # fmt: skip


def kept_plan(training: Mapping[str, object] = TRAINING, **sections: Mapping[str, object]) -> Plan:
    return parsed(**{"task": TASK, "training": training, "evaluation": {"every": 1}, **sections})


def slowly(
    plan: Plan, sites: Mapping[ParticipantId, Splits], outcome: SimulationOutcome
) -> tuple[dict[str, torch.Tensor], dict[str, np.ndarray]]:
    """Return what travels after all rounds, and the losses of each site's test records, site by site."""
    schema, scaling = next(iter(sites.values())).train.schema, outcome.scaling
    assert scaling is not None
    module = flat_model(plan, schema, torch.device("cpu"), Path()).module
    first = {name: value.detach().clone() for name, value in module.named_parameters()}
    own = {name: dict(first) for name in sites}
    shared = {name: value for name, value in first.items() if not name.startswith("output")}

    def records(splits: Splits, part: str) -> tuple[torch.Tensor, torch.Tensor]:
        held = splits.parts[part]
        assert held is not None
        scaled = (np.asarray(held.features, np.float64) - scaling.mean) / scaling.scale
        return torch.from_numpy(scaled), torch.from_numpy(np.asarray(held.labels))

    for _ in range(plan.training.rounds):
        moved: dict[str, torch.Tensor] = {name: torch.zeros_like(value) for name, value in shared.items()}
        for name, splits in sites.items():
            mine = {each: value.clone().requires_grad_() for each, value in (own[name] | shared).items()}
            features, labels = records(splits, "train")
            for _ in range(plan.training.local_steps):
                found = torch.func.functional_call(module, mine, (features,))
                slopes = torch.autograd.grad(functional.cross_entropy(found, labels), list(mine.values()))
                with torch.no_grad():
                    for each, slope in zip(mine, slopes, strict=True):
                        mine[each].sub_(slope, alpha=0.05)
            own[name] = {each: value.detach() for each, value in mine.items()}
            for each in shared:
                moved[each] += len(labels) * own[name][each]
        total = sum(len(splits.train) for splits in sites.values())
        shared = {name: value / total for name, value in moved.items()}
    losses = {}
    for name, splits in sites.items():
        features, labels = records(splits, "test")
        found = torch.func.functional_call(module, own[name] | shared, (features,))
        losses[name] = functional.cross_entropy(found, labels, reduction="none").detach().numpy()
    return shared, losses


def test_sites_share_the_body_and_are_judged_by_their_own_heads(tmp_path: Path) -> None:
    plan = kept_plan()
    sites = load_federation(plan, tmp_path)
    done = simulate_sites(plan, sites, tmp_path)
    shared, losses = slowly(plan, sites, done)
    assert [entry.name for entry in done.layout.entries] == sorted(shared)
    for name, value in done.layout.unflatten(done.model.vector).items():
        assert np.abs(value - shared[name].numpy()).max() < 1e-12
    for name, expected in losses.items():
        assert np.abs(done.losses[ParticipantId(name)]["test"].values - expected).max() < 1e-12
    # The heads differ: nobody's losses are those of the head before round 1, nor of a common one.
    common = simulate_sites(kept_plan({**TRAINING, "parameters": None}), sites, tmp_path)
    assert all(np.abs(common.losses[name]["test"].values - losses[name]).max() > 1e-3 for name in sites)


def test_a_simulation_has_no_one_model_for_other_records(tmp_path: Path) -> None:
    outcome = fedfair.simulate(kept_plan(), workspace=tmp_path)
    assert outcome.evaluate().count > 0
    features, labels = np.zeros((4, 30)), np.array([0, 1, 0, 1])
    for asked in (lambda: outcome.model, lambda: outcome.evaluate(features, labels)):
        with pytest.raises(PlanError, match="no one model answers for other records"):
            asked()


@pytest.mark.parametrize(
    ("change", "sections", "fault"),
    [
        ({"algorithm": "localbpf", "server_optimizer": None}, {}, "localbpf keeps no parts at sites"),
        ({"control_variates": True}, {}, "beside control_variates: true"),
        ({"output": "average"}, {}, "beside output: average"),
        ({"output": "best", "patience": 2}, {}, "beside patience: 2"),
        (
            {"batch_size": 16},
            {"privacy": {"sample_level": {"noise_multiplier": 1.0}}},
            "privacy.sample_level does not cover what stays at a site",
        ),
        ({"parameters": {"keep": []}}, {}, "is empty"),
        ({"parameters": {}}, {}, "nor is keep or lora"),
        ({"parameters": {**HEAD, "frozen_bits": 8}}, {}, "is 8, and nothing is frozen"),
    ],
)
def test_a_plan_whose_parts_cannot_stay_is_refused(
    change: Mapping[str, object], sections: Mapping[str, Mapping[str, object]], fault: str
) -> None:
    with pytest.raises(ValidationError, match=fault):
        kept_plan({**TRAINING, **change}, **sections)


@pytest.mark.parametrize(
    ("parameters", "fault"),
    [
        ({"keep": ["head.*"]}, r"keep: head\.\* names no parameter"),
        ({"keep": ["*"]}, "keep names everything that is trained"),
        ({"train": ["output.bias"], "keep": ["output.*"]}, "name output.bias, which cannot stay and travel"),
    ],
)
def test_patterns_that_leave_nothing_to_sum_are_refused(
    tmp_path: Path, parameters: Mapping[str, object], fault: str
) -> None:
    plan = kept_plan({**TRAINING, "parameters": parameters})
    schema = next(iter(load_federation(plan, tmp_path).values())).train.schema
    with pytest.raises(PlanError, match=fault):
        flat_model(plan, schema, torch.device("cpu"), tmp_path)


def test_the_best_is_not_returned_as_no_site_has_its_part_of_that_round() -> None:
    assert returned_output(kept_plan({**TRAINING, "output": "best"})) == "last"


def test_normalisation_that_stays_keeps_each_sites_own_statistics(tmp_path: Path) -> None:
    """FedBN: scales, shifts and running statistics are in no sum, and every site's are of its own records."""
    (tmp_path / "kept_norm.py").write_text(NORMED)
    plan = kept_plan({**TRAINING, "parameters": {"keep": ["norm.*"]}}, task={**TASK, "model": "kept_norm:model"})
    sites = load_federation(plan, tmp_path)
    done = simulate_sites(plan, sites, tmp_path)
    assert [entry.name for entry in done.layout.entries] == ["output.bias", "output.weight"]
    schema = next(iter(sites.values())).train.schema
    memory = VariatesInMemory()
    name, splits = next(iter(sites.items()))
    client = TrainingClient(plan, name, splits, flat_model(plan, schema, torch.device("cpu"), tmp_path))
    assert done.scaling is not None
    client.apply_scaling(done.scaling)
    request = asked(1, (0, 0, 0))
    own = KeptParameters(plan, name, memory)
    addend = client.contribution(request, done.model, own.correction(request, done.model, 1))
    own.adding(request, done.model, client.added(addend))
    kept = own.correction(asked(2, (1, 0, 0)), done.model, 1).kept
    part = client.records.model.kept
    assert kept is not None
    assert part is not None
    values = part.layout.unflatten(kept.astype(np.float64))
    scaled = (np.asarray(splits.train.features, np.float64) - done.scaling.mean) / done.scaling.scale
    # Two steps over all records: each moves the statistics by a tenth towards those of the records.
    assert values["norm.running_mean"] == pytest.approx(0.19 * scaled.mean(axis=0), abs=1e-9)
    assert not np.array_equal(values["norm.weight"], np.ones(30))


NORMED = """
import collections
import torch

def model(schema):
    layers = [("norm", torch.nn.BatchNorm1d(30)), ("output", torch.nn.Linear(30, 2))]
    return torch.nn.Sequential(collections.OrderedDict(layers))
"""


def asked(number: int, counted: tuple[int, ...]) -> SumRequest:
    held = CountedVariates(Variate(np.zeros(0), 0.0), 0.0, counted)
    spec = SumSpec(Purpose.TRAINING, 2, 62, np.dtype(np.float64))
    return SumRequest(Purpose.TRAINING, RoundNumber(number), 1, spec, terms={"variates": held})


def added(kept: Sequence[float] | None, weight: int = 5) -> AddedChange:
    return AddedChange(weight, np.zeros(3), 0.0, None if kept is None else np.array(kept))


def test_a_site_goes_on_from_the_round_that_counted_it_last() -> None:
    plan, model = kept_plan(), GlobalModel(np.zeros(3), 0.0)
    own = KeptParameters(plan, ParticipantId("clinic-b"), VariatesInMemory())

    def begins(number: int, counted: int) -> list[float] | None:
        kept = own.correction(asked(number, (9, counted, 9)), model, 5).kept
        return None if kept is None else kept.tolist()

    assert begins(1, 0) is None
    own.adding(asked(1, (0, 0, 0)), model, added([1.0, 2.0]))
    # The sum of round 1 was lost: another attempt begins as before, and replaces what the first has left.
    assert begins(1, 0) is None
    own.adding(asked(1, (0, 0, 0)), model, added([3.0, 4.0]))
    assert begins(2, 1) == [3.0, 4.0]
    # Round 2 was opened without this site; values that are no numbers leave the part as it was.
    own.adding(asked(2, (1, 1, 1)), model, added([5.0, 6.0]))
    assert begins(3, 1) == [3.0, 4.0]
    own.adding(asked(3, (2, 1, 2)), model, added([math.nan, 6.0]))
    assert begins(4, 3) == [3.0, 4.0]
    own.adding(asked(4, (3, 3, 3)), model, added(None, weight=0))
    assert begins(5, 4) == [3.0, 4.0]
    with pytest.raises(StateError, match="after round 2 is lost"):
        begins(5, 2)


def test_a_site_without_records_that_rounds_count_goes_on_as_before_round_1() -> None:
    plan, model = kept_plan(), GlobalModel(np.zeros(3), 0.0)
    own = KeptParameters(plan, ParticipantId("clinic-b"), VariatesInMemory())
    own.adding(asked(1, (0, 0, 0)), model, AddedChange.nothing())
    assert own.correction(asked(2, (1, 1, 1)), model, 0).kept is None
