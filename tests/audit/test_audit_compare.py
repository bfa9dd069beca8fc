"""A site's record beside the aggregator's mirror: what arrived, what was lost, and what should not be there."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.audit.items import MessageKind
from fedfair.audit.keeper import AT_CONNECTION, Occasion
from fedfair.audit.reader import MessageTally, RecordReader
from fedfair.audit.summary import compare, comparison, explanations, rows
from fedfair.errors import AuditError
from fedfair.statistics.table import Purpose
from tests.audit.record_makers import OTHER_PLAN, PLAN, ROUNDS, Said, kept, ownership, read

MIRROR = ownership(keeper="aggregator")
NOTHING = MessageTally(0, 0)


def mirrored(path: Path, said: tuple[Said, ...], plan: str = PLAN) -> RecordReader:
    return read(kept(path, said, MIRROR, plan))


def test_what_arrived_as_it_was_sent_agrees_in_any_order(tmp_path: Path) -> None:
    site = read(kept(tmp_path / "a.jsonl"))
    found = compare(site, [mirrored(tmp_path / "m.jsonl", ROUNDS[::-1])])
    assert (found.agreed, found.lost, found.foreign, found.plans) == (site.total, NOTHING, NOTHING, (PLAN,))
    assert "every message that is recorded arrived" in list(comparison(found))


@given(
    sent=st.lists(st.binary(max_size=3), max_size=8),
    arrived=st.lists(st.binary(max_size=3), min_size=1, max_size=8),
)
@settings(max_examples=25, deadline=None)
def test_equal_messages_are_counted_and_not_taken_for_one(
    tmp_path_factory: pytest.TempPathFactory, sent: list[bytes], arrived: list[bytes]
) -> None:
    folder = tmp_path_factory.mktemp("two")

    def messages(raws: list[bytes]) -> tuple[Said, ...]:
        return tuple((raw, MessageKind.VOTE, AT_CONNECTION) for raw in raws)

    found = compare(
        read(kept(folder / "a.jsonl", messages(sent))), [mirrored(folder / "m.jsonl", messages(arrived))]
    )
    # The slow way: cross out, one by one.
    lost, foreign = list(sent), []
    for raw in arrived:
        if raw in lost:
            lost.remove(raw)
        else:
            foreign.append(raw)
    assert found.lost == MessageTally(len(lost), len(b"".join(lost)))
    assert found.foreign == MessageTally(len(foreign), len(b"".join(foreign)))
    assert found.agreed.messages == (Counter(sent) & Counter(arrived)).total()


def test_a_record_whose_end_was_cut_off_lacks_what_arrived(tmp_path: Path) -> None:
    lines = kept(tmp_path / "a.jsonl").splitlines(keepends=True)
    mirror = mirrored(tmp_path / "m.jsonl", ROUNDS)
    found = compare(read(b"".join(lines[:11])), [mirror])
    assert found.foreign == MessageTally(3, sum(len(raw) for raw, _, _ in ROUNDS[-3:]))


def test_a_record_over_several_plans_is_compared_over_those_of_the_mirrors(tmp_path: Path) -> None:
    kept(tmp_path / "a.jsonl")
    site = read(kept(tmp_path / "a.jsonl", ROUNDS[:4], plan=OTHER_PLAN))
    first, second = (
        mirrored(tmp_path / "m.jsonl", ROUNDS[1:]),
        mirrored(tmp_path / "n.jsonl", ROUNDS[:4], OTHER_PLAN),
    )
    assert compare(site, [first]).lost == MessageTally(1, len(ROUNDS[0][0]))
    both = compare(site, [first, second])
    assert (both.lost.messages, both.foreign, both.plans) == (1, NOTHING, (PLAN, OTHER_PLAN))
    # The same bytes under another plan are another message.
    assert compare(site, [mirrored(tmp_path / "o.jsonl", ROUNDS, OTHER_PLAN)]).foreign.messages == len(ROUNDS) - 4


def test_two_files_that_are_not_both_sides_of_the_same_messages_are_not_compared(tmp_path: Path) -> None:
    site, mirror = read(kept(tmp_path / "a.jsonl")), mirrored(tmp_path / "m.jsonl", ROUNDS)
    of_another = read(kept(tmp_path / "b.jsonl", owner=ownership("clinic-b", "aggregator")))
    for first, second, words in (
        (mirror, mirror, "is a mirror itself"),
        (site, site, "kept by clinic-a; the record is of clinic-a"),
        (site, of_another, "about clinic-b of 'heart'"),
        (site, mirrored(tmp_path / "e.jsonl", ()), "holds no message"),
    ):
        with pytest.raises(AuditError, match=words):
            compare(first, [second])


def test_rows_are_by_purpose_or_by_sum_and_add_up(tmp_path: Path) -> None:
    retried = (b"again", MessageKind.MASKED_VECTOR, Occasion(Purpose.TRAINING, 3, 2))
    found = read(kept(tmp_path / "a.jsonl", (*ROUNDS, retried)))
    by_purpose = list(rows(found.groups, by_round=False))
    assert [(row.purpose, row.rounds, row.what, row.total.messages) for row in by_purpose] == [
        ("connection", "", "introduction", 1),
        ("training", "1 to 3", "sealed shares", 3),
        ("training", "1 to 3", "masked vector", 4),
        ("training", "1 to 3", "mask shares", 3),
    ]
    by_sum = list(rows(found.groups, by_round=True))
    assert [row.rounds for row in by_sum if row.what == "masked vector"] == ["1", "2", "3", "3, attempt 2"]
    for shown in (by_purpose, by_sum):
        assert sum(row.total.bytes for row in shown) == found.total.bytes
    assert [what for what, _ in explanations(found.groups)] == [row.what for row in by_purpose]
