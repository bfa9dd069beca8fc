"""What a site's computing process answers is, bit for bit, what the site computes in its own process.

A whole run is played. In each of its sums one site is asked twice, here and through every message of the other
process, and both answers are compared before one of them is added.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from collaborator.computing.serving import Seeds
from fedfair.aggregation.contribution import Contribution
from fedfair.aggregation.distributed_dp import distributed_dp
from fedfair.aggregation.reference import References
from fedfair.aggregation.requests import FeatureScaling, GlobalModel, SumRequest
from fedfair.ids import ParticipantId, RoundNumber
from fedfair.plan.derived import is_masked, is_noised
from fedfair.plan.loading import load_plan
from fedfair.plan.schema import Plan
from fedfair.privacy.releases import Release, ReleaseLog
from fedfair.run.training_run import TrainingRun
from fedfair.simulation.clients import LoopClients
from fedfair.simulation.simulate import play
from fedfair.tables.source import load_federation
from fedfair.terms.at_sites import NOTHING, Remembered, site_memory
from fedfair.terms.kept import VariatesInMemory
from fedfair.training.assembly import flat_model
from fedfair.training.binding import plan_binding
from fedfair.training.client import TrainingClient
from fedfair.training.dp_sgd import RecordProtection
from fedfair.training.site_task import SiteTask
from tests import plans
from tests.separate_computing import SEED, separate

MINE = ParticipantId("clinic-b")
MASKED: plans.Section = {"mode": "malicious"}
MLP: plans.Section = {"model": {"name": "mlp", "hidden": [3]}}
KEPT: plans.Section = {"parameters": {"keep": ["output.*"]}}
Sections = Mapping[str, plans.Section]

PLANS: Mapping[str, Sections] = {
    "masked": {"secure_aggregation": MASKED, "evaluation": {"every": 1, "method": "exact"}},
    "plain and drawn": {"training": {"batch_size": 16, "local_steps": 3}, "evaluation": {"scores": True}},
    "variates": {"secure_aggregation": MASKED, "training": {"local_steps": 2, "control_variates": True}},
    "thresholds": {"training": {"algorithm": "localbpf"}},
    "groups": {"training": {"algorithm": "afl", "local_steps": 1}},
    "powers": {"training": {"algorithm": "qffl"}, "secure_aggregation": MASKED},
    "kept": {"training": KEPT, "task": MLP},
    "references": {"objective": {"measure": "excess", "reference": {"rounds": 4}}, "secure_aggregation": MASKED},
    "slices": {"secure_aggregation": MASKED, "evaluation": {"slices": {"bins": 3, "outcomes": True}}},
    "records protected": {"privacy": {"sample_level": {"noise_multiplier": 1.0}}, "task": {"standardize": "none"}},
    "sites protected": {
        "secure_aggregation": {"mode": "semi-honest"},
        "training": {"weights": "uniform"},
        "privacy": {"collaborator_level": {"noise_multiplier": 1.0, "clip": 0.5}},
        "task": {"standardize": "none"},
    },
}


def written(folder: Path, sections: Sections) -> Path:
    """Return the file of a plan of three clinics."""
    stated = plans.over(plans.small_plan(rounds=2), **sections)  # type: ignore[arg-type]
    if stated["training"].get("algorithm") in plans.OWN_STEP:
        stated["training"]["server_optimizer"] = None
    file = folder / "plan.yaml"
    file.write_text(yaml.safe_dump(plans.over(stated, task={"test_fraction": 0.2, **sections.get("task", {})})))
    return file


def client(plan: Plan, name: ParticipantId, folder: Path, record: Callable[[Release], None]) -> TrainingClient:
    """Return what computes in this process, with seeds that follow from `SEED`."""
    model = flat_model(plan, plan_binding(plan, folder).schema, torch.device("cpu"), folder)
    seeds = Seeds()
    seeds.begin(SEED.hex())
    protection = RecordProtection(seeds, record) if is_noised(plan) else None
    own = load_federation(plan, folder)[name]
    return TrainingClient(plan, name, own, model, protection=protection, masked=is_masked(plan))


def begin(task: TrainingClient) -> None:
    """Let noise begin as it does for a question."""
    if task._protection is not None:
        assert isinstance(task._protection.entropy, Seeds)
        task._protection.entropy.begin(SEED.hex())


def same(one: Any, other: Any) -> None:  # noqa: ANN401 - any value of the product
    """Compare two values bit by bit."""
    if isinstance(one, np.ndarray):
        assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
    elif isinstance(one, Mapping):
        assert one.keys() == other.keys()
        for name, value in one.items():
            same(np.asarray(value) if np.isscalar(value) else value, other[name])
    elif hasattr(one, "__dataclass_fields__"):
        for each in fields(one):
            if each.name != "layout":
                same(getattr(one, each.name), getattr(other, each.name))
    else:
        assert repr(one) == repr(other)


class Twins(TrainingClient):
    """One site that computes here and elsewhere."""

    elsewhere: SiteTask

    def contribution(
        self, request: SumRequest, model: GlobalModel, remembered: Remembered = NOTHING
    ) -> Contribution:
        if request.purpose.statistic.is_round and self._parts.protection is None:
            asked = model, request.round, request.attempt, remembered
            here = self.summable_change(*asked)
            same(here, self.elsewhere.summable_change(*asked))
        begin(self)
        found = super().contribution(request, model, remembered)
        other = self.elsewhere.contribution(request, model, remembered)
        same(found, other)
        same(self.kept, self.elsewhere.kept)
        assert self.elsewhere.last_fault == self.last_fault
        if request.purpose.statistic.is_round:
            same(self.added(found), self.elsewhere.added(other))
        return found

    def noised_numbers(self, model: GlobalModel, number: RoundNumber, attempt: int) -> np.ndarray[Any, Any]:
        begin(self)
        found = super().noised_numbers(model, number, attempt)
        same(found, self.elsewhere.noised_numbers(model, number, attempt))
        return found

    def apply_scaling(self, scaling: FeatureScaling) -> None:
        super().apply_scaling(scaling)
        self.elsewhere.apply_scaling(scaling)

    def apply_references(self, references: References) -> None:
        super().apply_references(references)
        self.elsewhere.apply_references(references)


@pytest.mark.parametrize("what", PLANS)
def test_a_run_has_the_same_bits_wherever_a_site_computes(what: str, tmp_path: Path) -> None:
    file = written(tmp_path, PLANS[what])
    plan, here_log, there_log, others = load_plan(file), ReleaseLog(), ReleaseLog(), ReleaseLog()
    names = [ParticipantId(name) for name in plans.NAMES]
    logs = {name: here_log if name == MINE else others for name in names}
    tasks = {name: client(plan, name, tmp_path, logs[name].record) for name in names}
    here = tasks[MINE]
    here.__class__ = Twins
    assert isinstance(here, Twins)
    with separate(file, MINE) as computation:
        binding, records = computation.binding(), computation.records()
        assert binding.digest == plan_binding(plan, tmp_path).digest
        assert records.held == here.held_records
        here.elsewhere, _ = computation.task(binding, there_log)  # type: ignore[arg-type]  # it records
        found = {name: site_memory(plan, binding.layout, name, lambda _: VariatesInMemory()) for name in names}
        memories = {name: memory for name, memory in found.items() if memory is not None}
        clients = LoopClients(tasks, distributed_dp(plan, binding.layout.dimension), memories or None)
        run = TrainingRun(plan, binding.layout, binding.schema, binding.vector, carried=binding.carried)
        play(run, clients)
        same(here.losses_of(run.model), here.elsewhere.losses_of(run.model))
        same(here.own_values(None), here.elsewhere.own_values(None))
    assert (there_log.releases, there_log.sums) == (here_log.releases, here_log.sums)
    assert is_noised(plan) == bool(there_log.releases or there_log.sums)
