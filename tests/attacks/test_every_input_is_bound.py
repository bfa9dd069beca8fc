"""Whatever a contribution is made from is the site's own, follows from the approved plan, or is in the transcript.

The inputs are read off the code. A new argument, attribute or field fails here until somebody has said which of
the three it is; one that is said to be in the transcript must change it.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
import pytest

from collaborator.masked_worker import MaskedWorker
from fedfair.aggregation.quantile_query import QueryStep
from fedfair.aggregation.requests import FeatureScaling, GlobalModel, SumRequest
from fedfair.aggregation.round_subject import SumKey, round_subject
from fedfair.plan.purpose import Purpose
from fedfair.plan.schema import Plan
from fedfair.secagg.params import Mode, SessionTerms, Suite
from fedfair.secagg.round_messages import RoundStart
from fedfair.secagg.round_start import round_transcript
from fedfair.secagg.setup_messages import Proposal
from fedfair.secagg.transcript import session_identity
from fedfair.training.binding import plan_binding
from fedfair.training.client import TrainingClient
from fedfair.wire.frames import SumStart
from fedfair.wire.receiving import ReceivedRequest
from tests.plans import small_plan

ENTRANCES = ("summable_change", "noised_numbers", "contribution", "draws")
"""What `masked_worker` calls; everything that these methods call in turn is looked into as well."""

OWN, PLAN, TRANSCRIPT, UNUSED = "the site's own", "follows from the plan", "in the transcript", "never given"

ARGUMENTS: Mapping[str, str] = {
    "model": TRANSCRIPT,
    "round_number": TRANSCRIPT,
    "number": TRANSCRIPT,
    "request": TRANSCRIPT,
    "purpose": TRANSCRIPT,
    "step": TRANSCRIPT,
    "replaced": OWN,
    "attempt": OWN,  # Counted by `request_limits`, over everything that was asked, across restarts.
    "records": OWN,
    "splits": PLAN,  # Which splits are evaluated: always all.
    "header": OWN,
    "steps": UNUSED,  # A simulation makes fewer steps.
    "record_weights": UNUSED,  # A simulation weighs records.
    "weights": UNUSED,
}
"""Every argument of a method that a contribution passes through."""

ATTRIBUTES: Mapping[str, str] = {
    "_plan": PLAN,
    "_standardises": PLAN,
    "_noised": PLAN,
    "_objective": PLAN,
    "_histogram": PLAN,
    "_masked": PLAN,
    "_threshold_limit": PLAN,
    "_steps": PLAN,
    "_model": PLAN,  # Its content is the broadcast, which every method loads first.
    "_participant": OWN,
    "_splits": OWN,
    "_protection": OWN,
    "_records": TRANSCRIPT,  # The site's own records under the scaling in force.
    "_queried": OWN,  # Losses that were computed before, about the same model and scaling.
    "last_losses": OWN,  # What this contribution itself has found.
    "last_fault": OWN,
}
"""Every attribute that a contribution reads."""

TOLD_FIELDS: Mapping[type, Mapping[str, str]] = {
    GlobalModel: {"vector": TRANSCRIPT, "threshold": TRANSCRIPT},
    FeatureScaling: {"mean": TRANSCRIPT, "scale": TRANSCRIPT},
    QueryStep: {"number": TRANSCRIPT, "prefixes": TRANSCRIPT},
    SumRequest: {
        "purpose": TRANSCRIPT,
        "round": TRANSCRIPT,
        "attempt": OWN,
        "spec": PLAN,
        "query": TRANSCRIPT,
    },
}
"""Every field of what a contribution is handed."""

READ_BY_THE_WORKER = {"question.start", "question.model", "start.purpose", "start.round", "start.query"}
"""What `masked_worker` reads of a question to make a contribution: nothing that is not in the transcript."""


def methods() -> dict[str, ast.FunctionDef]:
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(TrainingClient))).body
    assert isinstance(tree, ast.ClassDef)
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def own_attributes(node: ast.AST) -> set[str]:
    """Return every X of a `self.X` in a piece of code."""
    found = (part for part in ast.walk(node) if isinstance(part, ast.Attribute))
    return {part.attr for part in found if isinstance(part.value, ast.Name) and part.value.id == "self"}


def reached() -> dict[str, ast.FunctionDef]:
    """Return every method that a contribution passes through."""
    known, pending, found = methods(), list(ENTRANCES), dict[str, ast.FunctionDef]()
    while pending:
        name = pending.pop()
        if name not in found:
            found[name] = known[name]
            pending += own_attributes(known[name]) & known.keys()
    return found


def test_every_attribute_that_a_contribution_reads_is_classified() -> None:
    read = set().union(*(own_attributes(node) for node in reached().values())) - methods().keys()
    assert read == set(ATTRIBUTES)


def test_every_argument_that_a_contribution_takes_is_classified() -> None:
    taken = set()
    for node in reached().values():
        arguments = node.args
        assert arguments.vararg is None
        assert arguments.kwarg is None
        taken |= {one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    assert taken - {"self"} == set(ARGUMENTS)


@pytest.mark.parametrize("kind", TOLD_FIELDS, ids=lambda kind: kind.__name__)
def test_every_field_of_what_is_handed_over_is_classified(kind: type) -> None:
    assert {one.name for one in fields(kind)} == set(TOLD_FIELDS[kind])


def test_the_worker_reads_nothing_of_a_question_that_is_not_in_the_transcript() -> None:
    read: set[str] = set()
    for method in (MaskedWorker._update, MaskedWorker._contribution):
        tree = ast.parse(textwrap.dedent(inspect.getsource(method)))
        for part in ast.walk(tree):
            if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name):
                read.add(f"{part.value.id}.{part.attr}")
    assert read & (_of(ReceivedRequest, "question") | _of(SumStart, "start")) == READ_BY_THE_WORKER


def _of(kind: type, name: str) -> set[str]:
    return {f"{name}.{one.name}" for one in fields(kind)}


def test_a_collaborator_never_gives_what_only_a_simulation_gives() -> None:
    tree = ast.parse(textwrap.dedent(inspect.getsource(MaskedWorker._update)))
    calls = [part for part in ast.walk(tree) if isinstance(part, ast.Call)]
    given = {keyword.arg for call in calls for keyword in call.keywords}
    assert given.isdisjoint(name for name, kind in ARGUMENTS.items() if kind is UNUSED)


# ------------------------------------------------------------------ what is in the transcript changes it


TERMS, QUERY = SessionTerms(Mode.MALICIOUS, Suite.X25519, 0, 2, 32, 100), QueryStep(2, (1, 2, 3))


@dataclass(frozen=True)
class Told:
    """Everything that the aggregator tells one site of one round."""

    plan_digest: bytes = hashlib.sha256(b"plan").digest()
    terms: SessionTerms = TERMS
    run_id: str = "0" * 32
    purpose: Purpose = Purpose.EXACT_EVALUATION
    round: int = 7
    query: QueryStep = QUERY
    vector: tuple[float, ...] = (1.0, -2.0)
    threshold: float = 0.5
    mean: tuple[float, ...] = (0.0, 1.0)
    scale: tuple[float, ...] | None = (1.0, 2.0)
    cohort: tuple[int, ...] = (1, 2, 3)
    needed: int = 2
    clips: tuple[float, ...] = (1.0,)

    def transcript(self) -> bytes:
        """Return T_r, as a site that is told this computes it."""
        proposal = Proposal(self.terms, self.plan_digest, bytes(32), bytes(32), bytes(32)).encode()
        session = session_identity(proposal, [(1, (bytes(32),))])
        scaling = None if self.scale is None else FeatureScaling(np.array(self.mean), np.array(self.scale))
        key = SumKey(self.run_id, self.purpose, self.round, self.query)
        subject = round_subject(key, GlobalModel(np.array(self.vector), self.threshold), scaling)
        start = RoundStart(session, 1, self.purpose.value, self.cohort, self.needed, subject, self.clips)
        return round_transcript(start, bytes(32))


def other_plan(**training: object) -> bytes:
    stated = small_plan(**training)  # type: ignore[arg-type]  # forwarded as they are
    task = {**stated["task"], "input_shape": [30], "classes": 2}  # type: ignore[dict-item]
    return plan_binding(Plan.model_validate({**stated, "task": task}), Path()).digest


CHANGES: Mapping[str, Callable[[Told], Told]] = {
    "plan": lambda told: replace(told, plan_digest=other_plan(learning_rate=1e-12)),
    "terms": lambda told: replace(told, terms=replace(told.terms, greatest_weight=1)),
    "run": lambda told: replace(told, run_id="1" * 32),
    "request.purpose": lambda told: replace(told, purpose=Purpose.TRAINING),
    "request.round": lambda told: replace(told, round=8),
    "query.number": lambda told: replace(told, query=QueryStep(3, (1, 2, 3))),
    "query.prefixes": lambda told: replace(told, query=QueryStep(2, (1, 2, 4))),
    "model.vector": lambda told: replace(told, vector=(1.0, float(np.nextafter(-2.0, 0.0)))),
    "model.threshold": lambda told: replace(told, threshold=float(np.nextafter(0.5, 1.0))),
    "scaling.mean": lambda told: replace(told, mean=(0.0, float(np.nextafter(1.0, 0.0)))),
    "scaling.scale": lambda told: replace(told, scale=(1.0, 1e300)),
    "no scaling": lambda told: replace(told, scale=None),
    "cohort": lambda told: replace(told, cohort=(1, 2)),
    "threshold of shares": lambda told: replace(told, needed=3),
    "clips": lambda told: replace(told, clips=(2.0,)),
}
"""One change for everything in the transcript."""


@pytest.mark.parametrize("what", CHANGES)
def test_a_site_that_is_told_anything_else_has_another_transcript(what: str) -> None:
    told = replace(Told(), plan_digest=other_plan())
    assert told.transcript() == told.transcript()
    assert CHANGES[what](told).transcript() != told.transcript()


def test_there_is_a_change_for_every_field_that_is_in_the_transcript() -> None:
    names = {GlobalModel: "model", FeatureScaling: "scaling", QueryStep: "query", SumRequest: "request"}
    claimed = _claimed((names[kind], said) for kind, said in TOLD_FIELDS.items())
    assert claimed - {"request.query"} <= CHANGES.keys()


def _claimed(told: Iterable[tuple[str, Mapping[str, str]]]) -> set[str]:
    return {f"{name}.{one}" for name, said in told for one, kind in said.items() if kind is TRANSCRIPT}


def test_a_standardisation_is_bound_to_its_run_and_to_no_model() -> None:
    told = replace(Told(), purpose=Purpose.STANDARDISATION)
    assert replace(told, vector=(9.0,), scale=None).transcript() == told.transcript()
    assert replace(told, run_id="1" * 32).transcript() != told.transcript()
