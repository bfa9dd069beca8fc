"""A plan that asks about one patient: what a site says in the clear is the same whatever its records are.

An aggregator chooses no model any more, so the crafted one is that of the plan: every site has approved it and
nobody has looked. One weight of it is near the largest float. Then the model has finite numbers about a record
just below a threshold, and none about a record just above it. A site that leaves a sum because of such a number
has answered the question whether the record exceeds the threshold.
"""

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
import torch
import yaml

from fedfair.aggregation.evaluation_file import parse_evaluation
from fedfair.certificate.issue import IssueTerms, draft
from fedfair.cli.loopback import prepare
from fedfair.errors import CertificateError
from fedfair.plan.loading import load_plan
from fedfair.results.document import ResultDocument
from fedfair.results.warnings import result_warnings
from fedfair.run.initial_model import InitialModel
from fedfair.tables.dataset import Dataset, Splits
from fedfair.training.binding import PlanBinding
from tests.interop.federation_kit import Federation, in_process_binding, metrics, play
from tests.plans import small_plan

Bound = TypeVar("Bound", InitialModel, PlanBinding)

NAMES = ("clinic-a", "clinic-b", "clinic-c")
TARGET = "clinic-c"
THRESHOLD = 1841.0
BELOW, ABOVE = 1840.0, 1842.0
MODULE = "fedfair_test_picky"
PICKY = """
from torch import nn

class Picky(nn.Module):
    def __init__(self, schema):
        super().__init__()
        self.layer = nn.Linear(schema.input_shape[0], schema.classes)

    def forward(self, features):
        if (features[:, 0] > 1841.0).any():
            raise ValueError(f"a value of {features[:, 0].max()} is too large")
        return self.layer(features)

def build(schema):
    return Picky(schema)
"""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    torch.set_num_threads(1)
    yield
    sys.modules.pop(MODULE, None)


def with_patient(data: Dataset, value: float) -> Dataset:
    """Return records whose first column is 0 but in the first of them, a patient of class 0."""
    features, labels = data.features.copy(), data.labels.copy()
    features[:, 0] = 0.0
    features[0, 0], labels[0] = value, 0
    return replace(data, features=features, labels=labels)


def crafted(bound: Bound) -> Bound:
    """Return the model of a plan whose author wants to know about one column."""
    vector, largest = np.zeros_like(bound.vector), np.finfo(bound.vector.dtype).max
    weights = [place for entry, place in bound.layout.slices() if entry.name.endswith("weight")]
    vector[weights[0].start] = largest / THRESHOLD
    if len(weights) > 1:
        vector[weights[1].start] = 1.0
    return replace(bound, vector=vector)


@dataclass
class Told:
    """What one run left at the aggregator.

    Attributes:
        messages: kind and length of every message of the target, in order.
        refusals: who took no part in which sum.
        contributors: of every sum that was opened.
        replaced: how many values were replaced in every sum that was opened.
        ending: how the run ended.
    """

    messages: list[tuple[str, int]]
    refusals: list[str]
    contributors: list[object]
    replaced: list[object]
    ending: str
    folder: Path


Attacked = Callable[..., Told]


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Attacked:
    """Play each attack once for all tests."""
    found = dict[str, Told]()

    def once(value: float, model: object, **training: object) -> Told:
        name = repr((value, model, training))
        if name not in found:
            found[name] = attack(tmp_path_factory.mktemp("attacked") / "run", value, model, **training)
        return found[name]

    return once


def attack(folder: Path, value: float, model: object, **training: object) -> Told:
    plan = small_plan(rounds=1, federation={"min_collaborators": 2}, protection={"mode": "malicious"}, **training)
    task = plan["task"]
    assert isinstance(task, dict)
    folder.mkdir()
    source = folder / "src" / f"{MODULE}.py"
    source.parent.mkdir()
    source.write_text(PICKY)
    sys.modules.pop(MODULE, None)
    workspace = prepare(folder, plan | {"task": {**task, "standardize": "none", "model": model}})
    for name in NAMES:
        file = folder / f"{name}.yaml"
        stated = yaml.safe_load(file.read_text())
        stated["policy"]["allow_module_code"] = True
        file.write_text(yaml.safe_dump(stated))

    def binding(plan: Path) -> InitialModel:
        bound = in_process_binding(plan)
        return bound if isinstance(model, str) else crafted(bound)

    async def everybody(federation: Federation) -> None:
        for name in NAMES:
            if not isinstance(model, str):
                ready = federation.ready(name)
                federation.sites[name] = replace(ready, binding=crafted(ready.binding))
            splits = federation.ready(name).task.records.splits
            patient = value if name == TARGET else 0.0
            held = (splits.train, splits.validation, splits.test)
            federation.ready(name).task.records.splits = Splits(
                *(None if data is None else with_patient(data, patient) for data in held)
            )
            federation.ready(name).task.records._placed = federation.ready(name).task.records._place(None)
        sites = [asyncio.create_task(federation.take_part(name)) for name in NAMES]
        await asyncio.wait({*sites, federation.serving}, return_when=asyncio.FIRST_EXCEPTION)
        for site in sites:
            site.cancel()
        await asyncio.gather(*sites, return_exceptions=True)

    ending = play(workspace, everybody, binding=binding)
    received = (folder / "received" / f"{TARGET}.jsonl").read_text().splitlines()
    messages = [json.loads(line) for line in received]
    return Told(
        [(entry["what"], entry["bytes"]) for entry in messages if entry["kind"] == "message"],
        (folder / "logs" / "aggregator_refusals.jsonl").read_text().splitlines(),
        [line["contributors"] for line in metrics(workspace)],
        [line.get("replaced_values") for line in metrics(workspace)],
        ending.state.value,
        folder,
    )


@pytest.mark.parametrize(
    ("model", "training"),
    [
        ({"name": "linear", "init": "zeros"}, {}),
        ({"name": "mlp", "hidden": [4]}, {"precision": "fp32"}),
        (f"{MODULE}:build", {}),
    ],
    ids=["linear", "mlp in single precision", "a module that raises on some records"],
)
def test_what_a_site_says_in_the_clear_does_not_tell_whether_a_record_exceeds_a_threshold(
    attacked: Attacked, model: object, training: dict[str, object]
) -> None:
    below, above = (attacked(value, model, batch_size="full", **training) for value in (BELOW, ABOVE))
    assert above.messages == below.messages
    assert above.refusals == below.refusals == []
    assert above.contributors == below.contributors == [3, 3, 3]
    assert above.ending == below.ending == "finished"


def test_what_was_replaced_is_counted_for_all_sites_together(attacked: Attacked) -> None:
    told = attacked(ABOVE, {"name": "linear", "init": "zeros"}, batch_size="full")
    evaluation, training, _ = told.replaced
    # One loss of one patient; then that patient's gradient, which is every entry of one row at least.
    assert evaluation == 1
    assert isinstance(training, int)
    assert training > 1


def test_no_bound_is_published_as_proved_where_losses_were_replaced(attacked: Attacked) -> None:
    plain = attacked(0.0, {"name": "linear", "init": "zeros"}, batch_size="full")
    told = attacked(ABOVE, f"{MODULE}:build", batch_size="full")
    assert set(plain.replaced) == {0}
    assert 0 not in told.replaced
    for one, proved in ((plain, True), (told, False)):
        result = json.loads((one.folder / "result.json").read_text())
        assert (result["objective"]["rcvar_bound"] is not None) is proved
        assert all((risk["bound"] is not None) is proved for risk in result["train"]["by_group_size"].values())
        assert ("replaced_losses" not in result["evaluation"]) is proved
        told_of = any(
            "nothing is proved" in doubt
            for doubt in result_warnings(ResultDocument.model_validate(result, strict=False))
        )
        assert told_of is not proved
        record = parse_evaluation((one.folder / "save" / "evaluation.json").read_bytes(), "a run")
        assert (record.replaced == 0) is proved
        if not proved:
            plan = load_plan(one.folder / "plan" / "plan.yaml")
            with pytest.raises(CertificateError, match="prove nothing about the model"):
                draft(record, plan, IssueTerms("train", (0.3,)), issued_at="2026-01-01T00:00:00Z")
