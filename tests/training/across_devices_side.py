"""One process of several: compares what they compute together with what this one computes alone."""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from fedfair.aggregation.reference import first_references
from fedfair.aggregation.requests import FeatureScaling, GlobalModel
from fedfair.errors import FedfairError
from fedfair.ids import ParticipantId, RoundNumber
from fedfair.plan.derived import is_noised, measures_excess, reference_of
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan
from fedfair.privacy.releases import ReleaseLog
from fedfair.tables.dataset import Dataset, Splits
from fedfair.training.across_devices import asked_processes, follow, join_processes
from fedfair.training.assembly import flat_model
from fedfair.training.client import TrainingClient
from fedfair.training.dp_sgd import RecordProtection, simulated_protection
from tests import plans
from tests.contributions import evaluation_of

RECORDS, COLUMNS = 41, 5
SITE = ParticipantId("site-0")
PLANS: dict[str, dict[str, object]] = {
    "srcvar": {"training": {"local_steps": 4, "batch_size": 7}},
    "one record a batch": {"training": {"local_steps": 4, "batch_size": 1}},
    "all records": {"training": {"local_steps": 2, "batch_size": "full"}},
    "excess": {"training": {"local_steps": 4, "batch_size": 7}, "objective": {"measure": "excess"}},
    "best response": {"training": {"algorithm": "localbpf", "local_steps": 3, "batch_size": 9}},
    "fp32": {"training": {"local_steps": 4, "batch_size": 7, "precision": "fp32"}},
    "fp16": {"training": {"local_steps": 2, "batch_size": 7, "precision": "fp16"}},
    "noised": {
        "training": {"local_steps": 3, "batch_size": 9},
        "privacy": {"sample_level": {"noise_multiplier": 1.0, "clip": 0.5}},
    },
    "noised, ghost": {
        "training": {"local_steps": 3, "batch_size": 9},
        "privacy": {"sample_level": {"noise_multiplier": 1.0, "clip": 0.5, "gradients": "ghost"}},
    },
}


def splits() -> Splits:
    source = np.random.default_rng(3)
    schema = FeatureSchema((COLUMNS,), 3, tuple(range(COLUMNS)))

    def some(count: int) -> Dataset:
        return Dataset(source.normal(size=(count, COLUMNS)), source.integers(0, 3, count), schema)

    return Splits(some(RECORDS), None, some(5000))


def plan_of(name: str, model: object) -> Plan:
    training = {"rounds": 3, "learning_rate": 0.05, "precision": "fp64", "device": "cpu"}
    given = PLANS[name].get("training", {})
    assert isinstance(given, dict)
    return plans.parsed(
        [SITE, "site-1"], secure_aggregation={"mode": "off"},
        task={"model": model, "standardize": "none" if "privacy" in PLANS[name] else "secure"},
        objective={"worst_group_size": 0.3, "tradeoff": 0.1, **PLANS[name].get("objective", {})},
        training={**training, **given},
        evaluation={"group_sizes": [0.3], "bins": 16}, privacy=PLANS[name].get("privacy", {}),
    )  # fmt: skip


class Counting:
    """A protection that counts what it is asked for."""

    def __init__(self, plan: Plan) -> None:
        self.log, self.asked = ReleaseLog(), list[str]()
        self._own = simulated_protection(plan, SITE, self.log)

    def entropy(self, *words: str | int) -> int:
        self.asked.append(str(words[0]))
        return self._own.entropy(*words)

    @property
    def protection(self) -> RecordProtection:
        return RecordProtection(self.entropy, self.log.record)


def main() -> None:
    found: dict[str, object] = {}
    processes = asked_processes(os.environ)
    assert processes is not None
    out, death = Path(sys.argv[1]), len(sys.argv) > 2 and sys.argv[2] == "death"
    torch.set_num_threads(1)
    group = join_processes(processes, torch.device("cpu"))
    held = splits()
    model = {"name": "mlp", "hidden": (8,)}
    scaling = FeatureScaling(np.arange(float(COLUMNS)) / 10, np.full(COLUMNS, 1.5))
    for name in PLANS:
        plan = plan_of(name, model)
        flats = [flat_model(plan, held.train.schema, torch.device("cpu"), Path()) for _ in range(2)]
        own = Counting(plan) if is_noised(plan) and group.leads else None
        shared = group.protection(None if own is None else own.protection) if is_noised(plan) else None
        together = TrainingClient(plan, SITE, held, flats[0], protection=shared, parts=group, masked=True)
        if not group.leads:
            if death:
                break
            follow(together, group)
            continue
        counting = Counting(plan)
        alone = TrainingClient(
            plan, SITE, held, flats[1], protection=counting.protection if is_noised(plan) else None, masked=True
        )
        try:
            found[name] = compared(plan, together, alone, scaling)
        except FedfairError as fault:
            found[name] = fault.diagnostics()
            break
        if own is not None:
            found[f"{name}, asked"] = [own.asked, counting.asked]
            found[f"{name}, released"] = [len(own.log.releases), len(counting.log.releases)]
        group.broadcast(None)
    if group.leads:
        out.write_text(json.dumps(found))


def compared(
    plan: Plan, together: TrainingClient, alone: TrainingClient, scaling: FeatureScaling
) -> dict[str, object]:
    """Return by how much two rounds and an evaluation differ."""
    if plan.task.standardize == "secure":
        for client in (together, alone):
            client.apply_scaling(scaling)
    if measures_excess(plan):
        first = first_references(plan, splits().train.schema)
        best = np.random.default_rng(5).normal(size=first.best.shape)
        for client in (together, alone):
            client.apply_references(replace(first, best=best, sums=reference_of(plan).rounds, best_at=1))
    start = GlobalModel(flat_model(plan, splits().train.schema, torch.device("cpu"), Path()).vector(), 0.7)
    apart = []
    for number in (1, 2):
        one, other = (client.summable_change(start, RoundNumber(number), 1) for client in (together, alone))
        assert one is not None
        assert other is not None
        moved = float(np.abs(other.model).max())
        apart.append([float(np.abs(one.model - other.model).max()), abs(one.threshold - other.threshold), moved])
        start = GlobalModel(start.vector + other.model, max(0.0, start.threshold + other.threshold))
    one, other = (evaluation_of(client, start, RoundNumber(2)) for client in (together, alone))
    same = one.header.tobytes() == other.header.tobytes()
    losses = [client.records.losses(start) for client in (together, alone)]
    return {
        "apart": apart,
        "same evaluation": same,
        "same losses": all(
            losses[0][name].values.tobytes() == losses[1][name].values.tobytes()
            and losses[0][name].excess.tobytes() == losses[1][name].excess.tobytes()
            and losses[0][name].excess.size == measures_excess(plan) * len(losses[0][name].values)
            and losses[0][name].predictions.tobytes() == losses[1][name].predictions.tobytes()
            for name in ("train", "test")
        ),
        "fault": together.last_fault,
    }


if __name__ == "__main__":
    main()
