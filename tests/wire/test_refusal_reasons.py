"""What leaves a site instead of a contribution: one of a closed list, whose form no record can change."""

from __future__ import annotations

import dataclasses
import typing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedfair.errors import LocalProtocolError, RemoteProtocolError
from fedfair.ids import SumNumber
from fedfair.policy.refusal_reasons import ACCUSING, RefusalReason, reason_for
from fedfair.policy.site_config import SitePolicy
from fedfair.secagg.checks import Check
from fedfair.wire import codec, frames
from fedfair.wire.limits import MAX_MEMBER
from fedfair.wire.v1 import federation_pb2 as pb

CONSTANT_TEXT = {"Hello": {"software_version", "run_id"}, "CheckRequest": {"software_version"}}
"""Text that a site sends beside its reasons: its version, and the run as the aggregator named it."""


def test_no_frame_of_a_collaborator_can_hold_words_of_its_own() -> None:
    for frame in (*typing.get_args(frames.CollaboratorFrame), frames.CheckRequest):
        hints = typing.get_type_hints(frame, vars(frames) | {"SumNumber": SumNumber})
        texts = {field.name for field in dataclasses.fields(frame) if hints[field.name] is str}
        assert texts == CONSTANT_TEXT.get(frame.__name__, set()), frame
    hints = typing.get_type_hints(frames.Abstain, vars(frames) | {"SumNumber": SumNumber})
    assert (hints["reason"], hints["accused"], hints["leaving"]) == (RefusalReason, int, bool)


@given(st.one_of(st.text(), st.integers(), st.binary(), st.none()))
def test_nothing_but_a_reason_of_the_list_makes_a_frame(reason: object) -> None:
    with pytest.raises(LocalProtocolError, match="closed list"):
        frames.Abstain(SumNumber(1), reason)  # type: ignore[arg-type]  # that is the test


def test_the_list_of_the_code_is_that_of_the_wire() -> None:
    declared = set(pb.Abstain.Reason.keys()) - {"REASON_UNSPECIFIED"}
    assert declared == {f"REASON_{reason.name}" for reason in RefusalReason}


def test_every_abstention_from_a_sum_has_the_same_length() -> None:
    sent = {len(codec.encode_collaborator_frame(frames.Abstain(SumNumber(7), one))) for one in RefusalReason}
    assert len(sent) == 1


@given(st.sampled_from(RefusalReason), st.integers(-1, 2**17), st.booleans())
def test_nobody_is_accused_but_a_member_of_a_roster_beside_a_reason_about_what_it_sealed(
    reason: RefusalReason, accused: int, leaving: bool
) -> None:
    allowed = accused == 0 or (0 < accused <= MAX_MEMBER and reason in ACCUSING and not leaving)
    number = accused if 0 <= accused < 2**16 + 2 else 2**16
    abstain = pb.Abstain(sum_number=1, reason=f"REASON_{reason.name}", leaving=leaving, accused=number)  # type: ignore[arg-type]  # by its name
    raw = pb.CollaboratorFrame(abstain=abstain).SerializeToString()
    if allowed:
        frame = frames.Abstain(SumNumber(1), reason, leaving, accused)
        assert codec.decode_collaborator_frame(raw) == frame
        return
    with pytest.raises(LocalProtocolError, match="accused"):
        frames.Abstain(SumNumber(1), reason, leaving, accused)
    if number:
        with pytest.raises(RemoteProtocolError, match="accused"):
            codec.decode_collaborator_frame(raw)


def test_the_length_of_an_accusation_follows_from_the_place_in_the_roster_alone() -> None:
    assert RefusalReason.SECAGG_ENVELOPE in ACCUSING
    for accused, extra in ((1, 2), (127, 2), (128, 3), (MAX_MEMBER, 4)):
        sent = {
            len(codec.encode_collaborator_frame(frames.Abstain(SumNumber(7), reason, accused=accused)))
            for reason in ACCUSING
        }
        plain = codec.encode_collaborator_frame(frames.Abstain(SumNumber(7), RefusalReason.SECAGG_ENVELOPE))
        assert sent == {len(plain) + extra}


@given(st.integers(0, 2**31 - 1))
def test_a_number_that_is_not_on_the_list_is_refused(number: int) -> None:
    raw = pb.CollaboratorFrame(abstain=pb.Abstain(sum_number=1, reason=number)).SerializeToString()  # type: ignore[arg-type]  # a liar's
    if number in set(pb.Abstain.Reason.values()) - {0}:
        assert isinstance(codec.decode_collaborator_frame(raw), frames.Abstain)
        return
    with pytest.raises(RemoteProtocolError, match="not in the list of reasons"):
        codec.decode_collaborator_frame(raw)


def test_no_sentence_holds_a_number_and_no_two_are_the_same() -> None:
    # The names of two things to configure have digits of their own; a value has none.
    assert not any(character.isdigit() for reason in RefusalReason for character in reason.value)
    assert len({reason.value for reason in RefusalReason}) == len(RefusalReason)


@given(st.text())
def test_every_term_is_told_as_one_of_the_list(term: str) -> None:
    assert reason_for(term) in RefusalReason


def test_terms_and_checks_are_told_by_their_names() -> None:
    # What is never a reason to refuse: a site with too few records takes part with nothing.
    for term in SitePolicy.model_fields.keys() - {"repeatable", "max_epsilon", "min_records"}:
        assert reason_for(term).value.endswith(f": {term}")
    for check in Check:
        told = reason_for(f"secure aggregation: {check.value}")
        # A check that has no reason of its own yet is told in general words, and not in others.
        assert told is RefusalReason.SECAGG or told.value.endswith(f": {check.value}")
