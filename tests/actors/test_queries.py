from __future__ import annotations

from pathlib import Path

import pytest

from collaborator.queries import AnsweredQueries
from fedfair.errors import FedfairError
from fedfair.evaluation.exact_query import QueryStep
from fedfair.ids import SumNumber
from fedfair.sums.spec import Purpose
from fedfair.wire.frames import SumStart

FIRST = (5, 6, 7)
SECOND = tuple(prefix << 10 | 1 for prefix in FIRST)
THIRD = tuple(prefix << 10 | 2 for prefix in SECOND)


def question(step: int, prefixes: tuple[int, ...] = (), *, model: bytes = bytes(32), attempt: int = 1) -> SumStart:
    query = QueryStep(step, prefixes)
    return SumStart(SumNumber(9), Purpose.EXACT_EVALUATION, 3, attempt, model, 60, query)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "clinic-a.queries"


def test_the_steps_of_one_query_are_answered_in_order_also_by_a_process_that_starts_anew(path: Path) -> None:
    for step, prefixes in ((1, ()), (2, FIRST), (3, SECOND), (4, THIRD)):
        assert AnsweredQueries(path).objection(question(step, prefixes)) is None


def test_the_same_question_may_come_again(path: Path) -> None:
    for attempt in (1, 2):
        assert AnsweredQueries(path).objection(question(1, attempt=attempt)) is None
        assert AnsweredQueries(path).objection(question(2, FIRST, attempt=attempt)) is None


def test_a_step_about_one_model_is_not_answered_for_other_prefixes(path: Path) -> None:
    queries = AnsweredQueries(path)
    for start in (question(1), question(2, FIRST)):
        assert queries.objection(start) is None
    for asked in (queries, AnsweredQueries(path)):
        reluctance = asked.objection(question(2, (5, 6, 8)))
        assert reluctance is not None
        assert reluctance.reason == "step 2 about this model was answered before"


@pytest.mark.parametrize(
    "start",
    [
        question(2, FIRST),  # before step 1
        question(3, SECOND),  # step 2 was left out
        question(3, tuple(prefix + (1 << 10) for prefix in SECOND)),
        question(4, THIRD[:2]),
    ],
)
def test_a_step_that_goes_on_from_nothing_is_not_answered_and_not_recorded(start: SumStart, path: Path) -> None:
    queries = AnsweredQueries(path)
    reluctance = queries.objection(start)
    assert reluctance is not None
    assert "does not go on from" in reluctance.reason
    assert not path.exists()


def test_prefixes_that_leave_the_path_are_not_answered(path: Path) -> None:
    queries = AnsweredQueries(path)
    assert queries.objection(question(1)) is None
    assert queries.objection(question(2, FIRST)) is None
    elsewhere = (SECOND[0], SECOND[1], SECOND[2] + (1 << 10))
    assert queries.objection(question(3, elsewhere)) is not None
    assert queries.objection(question(3, SECOND)) is None


def test_every_model_has_a_query_of_its_own(path: Path) -> None:
    queries = AnsweredQueries(path)
    for model in (bytes(32), b"\x01" * 32):
        assert queries.objection(question(1, model=model)) is None
        assert queries.objection(question(2, FIRST, model=model)) is None


def test_other_sums_are_nobodys_query(path: Path) -> None:
    start = SumStart(SumNumber(1), Purpose.EVALUATION, 0, 1, bytes(32), 60)
    assert AnsweredQueries(path).objection(start) is None
    assert not path.exists()


def test_a_line_that_a_crash_cut_off_was_never_answered(path: Path) -> None:
    queries = AnsweredQueries(path)
    assert queries.objection(question(1)) is None
    with path.open("a") as file:
        file.write('{"model": "00')
    again = AnsweredQueries(path)
    assert again.objection(question(2, FIRST)) is None
    assert AnsweredQueries(path).objection(question(2, (1, 2, 3))) is not None


def test_a_record_that_was_edited_is_refused(path: Path) -> None:
    path.parent.mkdir()
    path.write_text('{"model": 3}\n')
    with pytest.raises(FedfairError, match="cannot be read as this site's record"):
        AnsweredQueries(path)
