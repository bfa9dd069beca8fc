"""Whatever a contribution is made from is the site's own, follows from the approved plan, or is in the transcript.

A contribution is a function of four values: the site's own records, the approved plan, the state of the run, and
the request that follows from the state. The inputs are read off the code. A new argument, attribute or field fails
here until somebody has said which of them it is; one that is in the state, the request or the round must change
the transcript T_r. What an aggregator states beside it is compared, or is not read at all.
"""

import ast
import hashlib
import importlib
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from collaborator import masked_worker, plain_worker, run_follower
from collaborator.masked_worker import MaskedUpdates
from fedfair.aggregation.evaluation_file import EvaluatedModel
from fedfair.aggregation.evaluator import Evaluation
from fedfair.aggregation.quantile_query import ExactQuery, QueryStep
from fedfair.aggregation.reference import References
from fedfair.aggregation.requests import FeatureScaling, GlobalModel, SumRequest
from fedfair.aggregation.round_subject import round_subject
from fedfair.aggregation.slice_search import SliceSearch
from fedfair.aggregation.spec import SumSpec
from fedfair.aggregation.training_sum import IterateMean
from fedfair.ids import RoundNumber
from fedfair.plan.schema import Plan
from fedfair.run.kept_sum import KeptSum
from fedfair.run.state import RunState
from fedfair.run.state_slots import KEPT, SLOTS
from fedfair.secagg.params import Mode, SessionTerms, Suite
from fedfair.secagg.round_messages import RoundStart
from fedfair.secagg.round_start import round_transcript
from fedfair.secagg.setup_messages import Proposal
from fedfair.secagg.transcript import RoundSubject, session_identity
from fedfair.statistics.table import Purpose, room_of
from fedfair.terms.at_sites import OwnPart
from fedfair.terms.group_weights.site import GroupFactors
from fedfair.terms.group_weights.state import GroupWeights
from fedfair.terms.kept import CountedVariates, Variate
from fedfair.terms.server_step.state import Moments
from fedfair.terms.site_thresholds.site import SiteStart
from fedfair.terms.variates.site import Correction
from fedfair.training.binding import plan_binding
from fedfair.training.client import TrainingClient
from fedfair.training.local_descent import LocalDescent
from fedfair.training.local_records import LocalRecords
from fedfair.training.local_rounds import LocalRounds
from fedfair.training.site_statistics import SiteParts
from fedfair.transcript.merkle import MerkleFrontier
from fedfair.wire.frames import SumStart
from fedfair.wire.receiving import ReceivedRequest
from tests.held_terms import with_fact
from tests.plans import small_plan

ENTRANCES = ("summable_change", "noised_numbers", "contribution", "draws")
"""What `masked_worker` calls; everything that these methods call in turn is looked into as well."""

OTHER_READS = {"last_fault", "scaling", "apply_scaling", "apply_references", "training_weight", "kept"}
"""What a site asks of its task beside them: words for its operator, scaling, weight, its own part of the model."""

OWN, PLAN, STATE, REQUEST = "the site's own", "follows from the plan", "in the state", "in the request"
UNUSED = "never given"


def classified(*kinds: tuple[str, str]) -> dict[str, str]:
    """Return the kind of each name: names of one kind stand in one text."""
    return {name: kind for kind, names in kinds for name in names.split()}


ARGUMENTS = classified(
    # The variates of the state are remembered less the site's own of the round that the state names.
    (STATE, "model _model remembered threshold"),
    (REQUEST, "round_number number request purpose"),
    # Attempts are counted by `request_limits`, over everything that was asked, across restarts.
    (OWN, "replaced attempt records header parts _remembered losses values"),
    # Which splits are evaluated: always all.
    (PLAN, "splits name"),
    # A simulation makes fewer steps, and weighs records by what it has found; a site by the state alone.
    (UNUSED, "steps record_weights weights"),
)
"""Every argument of a method that a contribution passes through."""

ATTRIBUTES = classified(
    # The content of a model is that of the state, which every method loads first.
    (PLAN, "_plan plan standardises _noised objective histogram _columns _replaces _threshold_limit"),
    (PLAN, "header _steps descend _model model _statistics"),
    # The processes of a site: rank 0 tells the others what it was asked, and nothing else. Terms are from the plan
    # and the groups of the site's own records; what was evaluated and lost is what this contribution has found.
    (OWN, "parts lead _terms participant splits _protection protection records _records _parts"),
    # The part of the model that stays is what the site has kept of the round that the state names.
    (OWN, "descent _kept take everything ahead _evaluated last_losses fault rounds _descent training_records"),
    # The scaling of the target is part of the state's, and records stand under it; losses are about one scaling.
    # So are the references, and the answers that they give to the site's own records.
    (STATE, "_target _placed scalings references _judged _answered"),
)
"""Every attribute that a contribution reads."""

HANDED: Mapping[type, Mapping[str, str]] = {
    GlobalModel: {"vector": STATE, "threshold": STATE},
    FeatureScaling: {"mean": STATE, "scale": STATE},
    QueryStep: {"number": REQUEST, "prefixes": REQUEST},
    SumRequest: {
        "purpose": REQUEST,
        "round": REQUEST,
        "attempt": OWN,
        "spec": PLAN,
        "query": REQUEST,
        "terms": STATE,
        "part": REQUEST,
        "loss_unit": STATE,  # Of the scaling of the state and the plan's loss.
    },
    GroupWeights: {"weights": STATE, "counts": STATE},
    References: dict.fromkeys(("present", "best", "sums", "best_at", "best_loss", "temperature"), STATE),
    GroupFactors: {"factors": STATE},
    CountedVariates: {"total": STATE, "weight": STATE, "rounds": STATE},
    Correction: {"vector": OWN, "threshold": OWN, "new_weight": OWN},
    SiteStart: {"threshold": OWN},
    OwnPart: {"kept": OWN},
}
"""Every field of what a contribution is handed."""

UPDATING = (MaskedUpdates.effects, MaskedUpdates._remembering, MaskedUpdates._update)
"""What makes the update of a site."""

COMPARED, NAME, UNREAD = "compared with the site's own", "a name, for order and records", "not read"

STATED: Mapping[type, Mapping[str, str]] = {
    SumStart: {
        "sum_number": NAME, "purpose": COMPARED, "round": COMPARED, "attempt": UNREAD, "state": COMPARED,
        "deadline_seconds": UNREAD,
    },
    ReceivedRequest: {"start": COMPARED, "run_id": NAME, "on_demand": NAME},
}  # fmt: skip
"""Every field of what an aggregator states beside the messages of secure aggregation."""


LOOKED_INTO = (TrainingClient, LocalRecords, LocalDescent, LocalRounds, SiteParts)
"""The objects of a site that a contribution passes through, beside the functions of the rooms of statistics."""

OBJECTS = {
    "self", "records", "parts", "descent", "rounds", "_parts", "_descent", "_records",
}  # fmt: skip
"""The names of these objects, in their own methods and in the rooms."""


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def methods() -> dict[str, list[ast.FunctionDef]]:
    """Return every method of what a contribution passes through, by name; of rooms, what a site adds."""
    found: dict[str, list[ast.FunctionDef]] = {}
    for kind in LOOKED_INTO:
        for node in functions(_tree(kind)):
            if node.name != "__init__":
                found.setdefault(node.name, []).append(node)
    for purpose in Purpose:
        room = importlib.import_module(f"{room_of(purpose)}.site")
        found.setdefault("at_site", []).extend(
            node for node in functions(_tree(room)) if node.name in {"_at_site", "contribution"}
        )
    return found


def own_attributes(node: ast.AST) -> set[str]:
    """Return every X of a `self.X`, or of what a site holds, in a piece of code."""
    found = (part for part in ast.walk(node) if isinstance(part, ast.Attribute))
    return {part.attr for part in found if ast.unparse(part.value).split(".")[-1] in OBJECTS}


def reached() -> list[ast.FunctionDef]:
    """Return every method that a contribution passes through."""
    known, pending, found = methods(), [*ENTRANCES, "at_site"], dict[str, list[ast.FunctionDef]]()
    while pending:
        name = pending.pop()
        if name not in found:
            found[name] = known[name]
            pending += set().union(*map(own_attributes, known[name])) & known.keys()
    return [node for nodes in found.values() for node in nodes]


def test_every_attribute_that_a_contribution_reads_is_classified() -> None:
    assert (set().union(*map(own_attributes, reached())) - methods().keys()) == set(ATTRIBUTES)


def test_every_argument_that_a_contribution_takes_is_classified() -> None:
    taken = set()
    for node in reached():
        arguments = node.args
        assert arguments.vararg is None
        assert arguments.kwarg is None
        taken |= {one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    assert taken - {"self"} == set(ARGUMENTS)


def test_everything_that_a_site_asks_of_its_task_is_looked_into() -> None:
    asked = {
        part.attr
        for module in (masked_worker, run_follower)
        for part in ast.walk(ast.parse(inspect.getsource(module)))
        if isinstance(part, ast.Attribute) and ast.unparse(part.value) == "self._task"
    }
    assert asked == {*ENTRANCES, *OTHER_READS}


@pytest.mark.parametrize("kind", [*HANDED, *STATED], ids=lambda kind: kind.__name__)
def test_every_field_of_what_is_handed_over_is_classified(kind: type) -> None:
    assert {one.name for one in fields(kind)} == set({**HANDED, **STATED}[kind])


def reads(module: ModuleType, name: str) -> set[str]:
    """Return every X of a `name.X` in a module."""
    found = (part for part in ast.walk(ast.parse(inspect.getsource(module))) if isinstance(part, ast.Attribute))
    return {part.attr for part in found if isinstance(part.value, ast.Name) and part.value.id == name}


def test_what_an_aggregator_states_is_read_only_to_be_compared_or_as_a_name() -> None:
    modules = (masked_worker, plain_worker, run_follower)
    read = set().union(*(reads(module, "start") for module in modules)) & {one.name for one in fields(SumStart)}
    assert read == {name for name, kind in STATED[SumStart].items() if kind is not UNREAD}
    # What makes the update is given nothing that was stated: only the request that the site's own state makes.
    for method in UPDATING:
        taken = set(inspect.signature(method).parameters)
        assert taken <= {"self", "request", "attempt", "draws", "memory", "remembered"}
        names = {part.id for part in ast.walk(_tree(method)) if isinstance(part, ast.Name)}
        assert names.isdisjoint({"question", "start", "said", "message"})


def test_the_update_is_made_from_the_state_of_the_sites_own_copy_and_nothing_else_of_it() -> None:
    used = {
        ast.unparse(part)
        for method in UPDATING
        for part in ast.walk(_tree(method))
        if isinstance(part, ast.Attribute) and "_follower" in ast.unparse(part)
    }
    assert max(used, key=len) == "self._follower.replica.state.model"
    assert all("self._follower.replica.state.model".startswith(part) for part in used)


def test_a_collaborator_never_gives_what_only_a_simulation_gives() -> None:
    nodes = (part for method in UPDATING for part in ast.walk(_tree(method)))
    calls = [part for part in nodes if isinstance(part, ast.Call)]
    given = {keyword.arg for call in calls for keyword in call.keywords}
    assert given.isdisjoint(name for name, kind in ARGUMENTS.items() if kind is UNUSED)


def _tree(method: Callable[..., object] | ModuleType) -> ast.AST:
    return ast.parse(textwrap.dedent(inspect.getsource(method)))


# ------------------------------------------------------------------ state, request and round change the transcript

TERMS, SPEC = (
    SessionTerms(Mode.MALICIOUS, Suite.X25519, 0, 2, 32, 100),
    SumSpec(Purpose.TRAINING, 2, 2, np.dtype("<f8")),
)
MODEL, SCALING = (
    GlobalModel(np.array([1.0, -2.0]), 0.5),
    FeatureScaling(np.array([0.0, 1.0]), np.array([1.0, 2.0])),
)
PLAN_DIGEST, SHAPE = hashlib.sha256(b"plan").digest(), bytes(32)
SUMS = EvaluatedModel(np.ones(3), bytes(32), 0.5, 1, 2)


@dataclass(frozen=True)
class Held:
    """Everything that one site computes T_r from: its own state and request, and the round that it enters."""

    state: RunState
    request: SumRequest
    plan_digest: bytes = PLAN_DIGEST
    terms: SessionTerms = TERMS
    cohort: tuple[int, ...] = (1, 2, 3)
    needed: int = 2
    clips: tuple[float, ...] = (1.0,)
    shape: bytes = SHAPE

    def transcript(self) -> bytes:
        """Return T_r, as a site that holds this computes it."""
        proposal = Proposal(self.terms, self.plan_digest, bytes(32), bytes(32), bytes(32)).encode()
        session = session_identity(proposal, (1,), bytes(32))
        subject = round_subject(self.state.digest(self.plan_digest), self.request)
        start = RoundStart(session, 1, self.request.purpose.value, self.cohort, self.needed, subject, self.clips)
        return round_transcript(start, self.shape)


HELD = Held(
    RunState(Purpose.TRAINING, MODEL, RoundNumber(6), SCALING, {"clip": 1.0}),
    SumRequest(Purpose.TRAINING, RoundNumber(7), 1, SPEC, QueryStep(2, (1, 2, 3))),
)


def up(value: float) -> float:
    return float(np.nextafter(value, np.inf))


STATES: Mapping[str, Mapping[str, object]] = {
    "stage": {"": Purpose.EVALUATION},
    "model": {
        "vector": GlobalModel(np.array([1.0, up(-2.0)]), 0.5),
        "threshold": GlobalModel(MODEL.vector, up(0.5)),
    },
    "rounds_done": {"": RoundNumber(7)},
    "scaling": {
        "mean": FeatureScaling(np.array([0.0, up(1.0)]), SCALING.scale),
        "scale": FeatureScaling(SCALING.mean, np.array([1.0, 1e300])),
        "none": None,
    },
    "clip": {"": up(1.0), "none": None},
    "variates": {
        "total": CountedVariates(Variate(np.array([0.0, up(1.0)]), 0.5), 3.0, (6, 0)),
        "threshold": CountedVariates(Variate(np.array([0.0, 1.0]), up(0.5)), 3.0, (6, 0)),
        "weight": CountedVariates(Variate(np.array([0.0, 1.0]), 0.5), up(3.0), (6, 0)),
        "rounds": CountedVariates(Variate(np.array([0.0, 1.0]), 0.5), 3.0, (6, 1)),
    },
    "groups": {
        "weights": GroupWeights(np.array([up(0.5), 0.5]), np.array([3.0, 4.0])),
        "counts": GroupWeights(np.array([0.5, 0.5]), np.array([3.0, 5.0])),
    },
    "mean": {"": IterateMean(np.ones(2), 0.25, 4)},
    "best": {"": MODEL},
    "last": {"": MODEL},
    "history_digest": {"": bytes([1]) * 32},
    "left_out": {"": (RoundNumber(1),)},
    "final": {"": Evaluation(RoundNumber(7), 0.5, {}, {})},
    "evaluated": {"": SUMS},
    "evaluated_earlier": {"": SUMS},
    "evaluated_best": {"": SUMS},
    "moments": {"": Moments(np.ones(1), np.ones(1))},
    "query": {"": ExactQuery.of((0.5,))},
    "query_fault": {"": "given up"},
    "references": {
        "present": References(np.array([1.0, up(2.0)]), np.ones(2), 3, 2, 0.5, 1),
        "best": References(np.array([1.0, 2.0]), np.array([1.0, up(1.0)]), 3, 2, 0.5, 1),
        "sums": References(np.array([1.0, 2.0]), np.ones(2), 4, 2, 0.5, 1),
        "best_at": References(np.array([1.0, 2.0]), np.ones(2), 3, 1, 0.5, 1),
        "best_loss": References(np.array([1.0, 2.0]), np.ones(2), 3, 2, up(0.5), 1),
        "temperature": References(np.array([1.0, 2.0]), np.ones(2), 3, 2, 0.5, 2),
    },
    "slices": {
        "": SliceSearch(),
        "number": SliceSearch(3),
        "split": SliceSearch(split=2),
        "cuts": SliceSearch(cuts=((0, 5),)),
        "asked": SliceSearch(asked=(True,)),
        "members": SliceSearch(members=("a",)),
        "header": SliceSearch(header=np.ones(1)),
        "fault": SliceSearch(fault="given up"),
    },
    "tree": {
        "": MerkleFrontier(),
        "size": MerkleFrontier(2, (bytes(32),)),
        "peaks": MerkleFrontier(4, (bytes([1]) * 32,)),
    },
    **{
        word: {
            "header": KeptSum(np.full(3, up(1.0)), ("a", "b", "c")),
            "members": KeptSum(np.ones(3), ("a", "b", "d")),
        }
        for word in KEPT
    },
}
"""Another value of every attribute of the state; of those that a contribution reads, of each of their parts."""

BY_ITS_DIGEST = "history"
"""The one attribute that is in by another one, `history_digest`."""

REQUESTS: Mapping[str, object] = {
    "purpose": Purpose.EVALUATION, "round": RoundNumber(8), "query": QueryStep(2, (1, 2, 4)), "part": 3,
    "query.number": QueryStep(3, (1, 2, 3)), "no query": None,
}  # fmt: skip
TERMS_CHANGED: Mapping[str, object] = {
    "mode": Mode.SEMI_HONEST, "suite": Suite.X25519_MLKEM768, "colluders": 1, "threshold": 3,
    "ring_bits": 24, "greatest_weight": 101, "check_sums": False, "neighbours": 6,
}  # fmt: skip
ROUNDS: Mapping[str, object] = {
    "plan_digest": hashlib.sha256(b"another").digest(), "cohort": (1, 2), "needed": 3, "clips": (2.0,),
    "shape": bytes([1]) * 32,
}  # fmt: skip

CHANGES: Mapping[str, Held] = {
    **{
        f"state.{name} {part}".strip(): replace(HELD, state=with_fact(HELD.state, name, value))
        for name, parts in STATES.items()
        for part, value in parts.items()
    },
    **{
        f"request.{name}": replace(
            HELD, request=replace(HELD.request, **{name.split(".")[0].removeprefix("no "): value})
        )  # type: ignore[arg-type]
        for name, value in REQUESTS.items()
    },
    **{
        f"terms.{name}": replace(HELD, terms=replace(TERMS, **{name: value}))  # type: ignore[arg-type]
        for name, value in TERMS_CHANGED.items()
    },
    **{name: replace(HELD, **{name: value}) for name, value in ROUNDS.items()},  # type: ignore[arg-type]
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_site_that_holds_anything_else_has_another_transcript(what: str) -> None:
    assert HELD.transcript() == replace(HELD).transcript()
    assert CHANGES[what].transcript() != HELD.transcript()


def test_no_two_changes_have_one_transcript() -> None:
    assert len({held.transcript() for held in CHANGES.values()}) == len(CHANGES)


def test_there_is_a_change_for_everything_that_the_transcript_must_hold() -> None:
    assert {*STATES, BY_ITS_DIGEST} == {*SLOTS, "history_digest"}
    for kind, name in (
        (GlobalModel, "model"),
        (FeatureScaling, "scaling"),
        (CountedVariates, "variates"),
        (GroupWeights, "groups"),
        (References, "references"),
        (SliceSearch, "slices"),
        (MerkleFrontier, "tree"),
    ):
        assert {one.name for one in fields(kind)} <= STATES[name].keys()
    # What a request says of terms and of the unit of a loss is the state's, which the transcript holds.
    of_state = {"terms", "loss_unit"}
    assert {one.name for one in fields(SumRequest)} - {"attempt", "spec", *of_state} <= REQUESTS.keys()
    assert {one.name for one in fields(SessionTerms)} == set(TERMS_CHANGED)
    assert {one.name for one in fields(Held)} == {"state", "request", "terms", *ROUNDS}
    # A round start holds nothing but these, the session and its own number.
    assert {one.name for one in fields(RoundStart)} == {
        "session_id", "round", "purpose", "cohort", "threshold", "subject", "clips",
    }  # fmt: skip
    assert {one.name for one in fields(RoundSubject)} == {"state_digest", "request_digest"}


def test_an_attempt_is_a_sites_own_and_in_no_transcript() -> None:
    assert replace(HELD, request=replace(HELD.request, attempt=2)).transcript() == HELD.transcript()


def other_plan(**training: object) -> bytes:
    stated = small_plan(**training)  # type: ignore[arg-type]  # forwarded as they are
    task = {**stated["task"], "input_shape": [30], "classes": 2}  # type: ignore[dict-item]
    return plan_binding(Plan.model_validate({**stated, "task": task}), Path()).digest


def test_a_plan_that_differs_by_next_to_nothing_is_in_the_state_and_in_the_session() -> None:
    one, other = other_plan(), other_plan(learning_rate=1e-12)
    assert one != other
    assert HELD.state.digest(one) != HELD.state.digest(other)
    held = (replace(HELD, plan_digest=digest) for digest in (one, other))
    assert len({each.transcript() for each in held}) == 2
