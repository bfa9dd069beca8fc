"""A site answers one query about a model, step by step; which step is due, its own state says already."""

import pytest

from fedfair.aggregation.quantile_query import QueryStep
from fedfair.policy.aggregation_request import AggregationRequest
from fedfair.policy.decision import QueryHistory
from fedfair.policy.refusal import Refusal
from fedfair.statistics.table import Purpose

FIRST = (5, 6, 7)
SECOND = tuple(prefix << 10 | 1 for prefix in FIRST)
THIRD = tuple(prefix << 10 | 2 for prefix in SECOND)


def asked(purpose: Purpose, query: QueryStep | None, model: bytes, state: bytes) -> AggregationRequest:
    return AggregationRequest("a", False, purpose, 3, query, state, model, ())


def question(
    step: int, prefixes: tuple[int, ...] = (), *, model: bytes = bytes(32), state: bytes = bytes(32)
) -> AggregationRequest:
    return asked(Purpose.EXACT_EVALUATION, QueryStep(step, prefixes), model, state)


Disk = dict[bytes, bytes]


@pytest.fixture
def table() -> Disk:
    """Return what is on the disk."""
    return {}


def objection(table: Disk, request: AggregationRequest) -> Refusal | None:
    """Ask a process that starts anew, and write what it notes."""
    said = QueryHistory(table).decide(request)
    if isinstance(said, Refusal):
        return said
    table.update(said)
    return None


def test_the_steps_of_one_query_are_answered_in_order_also_by_a_process_that_starts_anew(table: Disk) -> None:
    for step, prefixes in ((1, ()), (2, FIRST), (3, SECOND), (4, THIRD)):
        assert objection(table, question(step, prefixes)) is None


def test_the_same_question_may_come_again_also_about_another_state_of_the_same_model(table: Disk) -> None:
    for state in (bytes(32), b"\x01" * 32):
        assert objection(table, question(1, state=state)) is None
        assert objection(table, question(2, FIRST, state=state)) is None


def test_a_step_about_one_model_is_not_answered_for_other_prefixes(table: Disk) -> None:
    for request in (question(1), question(2, FIRST)):
        assert objection(table, request) is None
    refusal = objection(table, question(2, (5, 6, 8)))
    assert refusal.reason == "step 2 about this model was answered before"


@pytest.mark.parametrize(
    "request_",
    [
        question(2, FIRST),  # before step 1
        question(3, SECOND),  # step 2 was left out
        question(3, tuple(prefix + (1 << 10) for prefix in SECOND)),
        question(4, THIRD[:2]),
    ],
)
def test_a_step_that_goes_on_from_nothing_leaves_no_row(request_: AggregationRequest, table: Disk) -> None:
    assert "does not continue from" in objection(table, request_).reason
    assert not table


def test_prefixes_that_leave_the_path_are_not_answered(table: Disk) -> None:
    assert objection(table, question(1)) is None
    assert objection(table, question(2, FIRST)) is None
    assert objection(table, question(3, (SECOND[0], SECOND[1], SECOND[2] + (1 << 10)))) is not None
    assert objection(table, question(3, SECOND)) is None


def test_every_model_has_a_query_of_its_own(table: Disk) -> None:
    for model in (bytes(32), b"\x01" * 32):
        assert objection(table, question(1, model=model)) is None
        assert objection(table, question(2, FIRST, model=model)) is None


def slices(step: int, prefixes: tuple[int, ...]) -> AggregationRequest:
    return asked(Purpose.SLICES, QueryStep(step, prefixes), bytes(32), bytes(32))


def test_slices_of_one_model_are_cut_once_and_step_by_step_beside_its_exact_evaluation(table: Disk) -> None:
    assert objection(table, question(1)) is None
    assert "does not continue from" in objection(table, slices(2, (2, 1, 0))).reason
    for request in (slices(1, (2,)), slices(2, (2, 1, 0)), slices(3, (2, 1, 0, 1))):
        assert objection(table, request) is None
        assert objection(table, request) is None
    # Other cells about the same model would be people who can be subtracted from the first ones.
    refusal = objection(table, slices(2, (2, 2, 0, 30)))
    assert (refusal.term, refusal.reason) == ("slices", "step 2 about this model was answered before")
    assert objection(table, question(2, FIRST)) is None


def test_other_sums_are_nobodys_query(table: Disk) -> None:
    assert objection(table, asked(Purpose.EVALUATION, None, bytes(32), bytes(32))) is None
    assert not table


def test_a_row_that_was_spoiled_is_refused_and_no_fault(table: Disk) -> None:
    assert objection(table, question(1)) is None
    assert objection(table, question(2, FIRST)) is None
    spoiled = {row: b"\xff" + value[1:] for row, value in table.items()}
    assert objection(spoiled, question(2, FIRST)) is not None
