"""The life of a study is a fold of the record, and nobody does what their role or its phase does not allow."""

import pytest

from fedfair.consortium.acts import ActKind, StudyOutcome
from fedfair.consortium.faults import ConsortiumError, RecordCheck
from fedfair.consortium.studies import ConsortiumStudy, StudyPhase
from tests.consortium.consortium_makers import PLAN, ROLES, Play, approval_of, listed


def play(needed: int = 3) -> Play:
    found = Play()
    found.done(ActKind.SUBMITTED, "bert", needed=needed)
    return found


def study(found: Play) -> ConsortiumStudy:
    return found.record.studies["stroke"]


def refused_by(found: Play, kind: ActKind, by: str, **fields: object) -> RecordCheck:
    before = found.record.head
    with pytest.raises(ConsortiumError) as caught:
        found.done(kind, by, **fields)
    assert found.record.head == before
    return caught.value.check


def test_a_study_that_all_sites_approve_runs_to_its_result() -> None:
    found = play()
    assert study(found).phase is StudyPhase.PROPOSED
    found.approved("clinic-c", "clinic-a")
    assert study(found).waiting_for == ("clinic-b",)
    found.approved("clinic-b")
    assert (study(found).phase, study(found).taking_part) == (
        StudyPhase.READY,
        ("clinic-a", "clinic-b", "clinic-c"),
    )
    found.done(ActKind.STARTED, "aggregator")
    assert study(found).phase is StudyPhase.RUNNING
    found.done(ActKind.ENDED, "aggregator", result_digest=PLAN, result_bytes=9)
    assert (study(found).phase, study(found).result_digest, study(found).result_bytes) == (
        StudyPhase.FINISHED,
        PLAN,
        9,
    )


def test_one_refusal_refuses_where_all_are_needed_and_none_more_is_asked() -> None:
    found = play()
    found.done(ActKind.REFUSED, "clinic-a", words="no records of it")
    assert study(found).phase is StudyPhase.REFUSED
    assert "clinic-a: no records of it" in study(found).words
    assert refused_by(found, ActKind.APPROVED, "clinic-b") is RecordCheck.PHASE


def test_a_study_waits_for_every_decision_and_starts_without_those_who_refused() -> None:
    found = play(needed=2)
    found.approved("clinic-a", "clinic-b")
    assert study(found).phase is StudyPhase.PROPOSED
    found.done(ActKind.REFUSED, "clinic-c")
    assert (study(found).phase, study(found).taking_part) == (StudyPhase.READY, ("clinic-a", "clinic-b"))


def test_a_site_that_withdraws_leaves_the_others_where_enough_are_left() -> None:
    found = play(needed=2)
    found.approved("clinic-a", "clinic-b", "clinic-c")
    found.done(ActKind.STARTED, "aggregator")
    found.done(ActKind.WITHDRAWN, "clinic-a", words="a patient asked")
    assert (study(found).phase, study(found).taking_part) == (StudyPhase.RUNNING, ("clinic-b", "clinic-c"))
    found.done(ActKind.WITHDRAWN, "clinic-b")
    assert study(found).phase is StudyPhase.WITHDRAWN
    assert "clinic-a: a patient asked" in study(found).words


@pytest.mark.parametrize("by", ["bert", "anna"])
@pytest.mark.parametrize("approved", [0, 3])
def test_who_submitted_a_study_and_the_lead_withdraw_it(by: str, approved: int) -> None:
    found = play()
    found.approved(*("clinic-a", "clinic-b", "clinic-c")[:approved])
    found.done(ActKind.WITHDRAWN, by, words="the question changed")
    assert study(found).phase is StudyPhase.WITHDRAWN
    assert study(found).words == f"{by} withdrew it: the question changed"
    assert refused_by(found, ActKind.STARTED, "aggregator") is RecordCheck.PHASE


def test_a_name_is_used_once_for_ever_and_a_plan_by_one_open_study() -> None:
    found = play()
    assert refused_by(found, ActKind.SUBMITTED, "carl", plan_digest=bytes(32)) is RecordCheck.STUDY
    assert refused_by(found, ActKind.SUBMITTED, "carl", study="stroke-2") is RecordCheck.STUDY
    found.done(ActKind.WITHDRAWN, "bert")
    assert refused_by(found, ActKind.SUBMITTED, "bert", plan_digest=bytes(32)) is RecordCheck.STUDY
    found.done(ActKind.SUBMITTED, "carl", study="stroke-2")
    assert list(found.record.studies) == ["stroke", "stroke-2"]


@pytest.mark.parametrize(
    ("kind", "by", "fields", "check"),
    [
        (ActKind.SUBMITTED, "dora", {"study": "new"}, RecordCheck.ROLE),
        (ActKind.SUBMITTED, "clinic-a", {"study": "new"}, RecordCheck.ROLE),
        (ActKind.SUBMITTED, "bert", {"study": "new", "plan_digest": bytes(32), "needed": 4}, RecordCheck.PAYLOAD),
        (
            ActKind.SUBMITTED,
            "bert",
            {"study": "new", "plan_digest": bytes(32), "sites": ("dora",)},
            RecordCheck.PAYLOAD,
        ),
        (ActKind.APPROVED, "anna", {"payload": b""}, RecordCheck.ROLE),
        (ActKind.APPROVED, "clinic-d", {}, RecordCheck.AUTHOR),
        (ActKind.APPROVED, "clinic-a", {"payload": approval_of("clinic-b")}, RecordCheck.PAYLOAD),
        (ActKind.APPROVED, "clinic-a", {"payload": approval_of("clinic-a", bytes(32))}, RecordCheck.PAYLOAD),
        (ActKind.APPROVED, "clinic-a", {"plan_digest": bytes(32)}, RecordCheck.STUDY),
        (ActKind.APPROVED, "clinic-a", {"study": "unknown"}, RecordCheck.STUDY),
        (ActKind.REFUSED, "bert", {}, RecordCheck.ROLE),
        (ActKind.WITHDRAWN, "carl", {}, RecordCheck.ROLE),
        (ActKind.WITHDRAWN, "dora", {}, RecordCheck.ROLE),
        (ActKind.WITHDRAWN, "clinic-a", {}, RecordCheck.PHASE),
        (ActKind.STARTED, "anna", {}, RecordCheck.ROLE),
        (ActKind.STARTED, "aggregator", {}, RecordCheck.PHASE),
        (ActKind.ENDED, "aggregator", {}, RecordCheck.PHASE),
        (ActKind.ENDED, "bert", {}, RecordCheck.ROLE),
        (ActKind.MEMBERS, "bert", {"payload": listed(number=2)}, RecordCheck.ROLE),
    ],
)
def test_what_a_role_or_a_phase_does_not_allow_is_refused_by_name(
    kind: ActKind, by: str, fields: dict[str, object], check: RecordCheck
) -> None:
    assert refused_by(play(), kind, by, **fields) is check


def test_a_site_decides_once() -> None:
    found = play(needed=1)
    found.approved("clinic-a")
    assert refused_by(found, ActKind.REFUSED, "clinic-a") is RecordCheck.PHASE
    assert refused_by(found, ActKind.APPROVED, "clinic-a", words="again") is RecordCheck.PHASE


def test_the_hub_ends_a_study_that_it_cannot_carry_out() -> None:
    found = play()
    found.done(ActKind.ENDED, "aggregator", outcome=StudyOutcome.ABORTED, words="its disk is full")
    assert (study(found).phase, study(found).words) == (StudyPhase.ABORTED, "its disk is full")


def test_a_site_that_is_no_member_any_more_has_withdrawn() -> None:
    found = play(needed=2)
    found.approved("clinic-a", "clinic-b", "clinic-c")
    roles = {name: role for name, role in ROLES.items() if name != "clinic-c"}
    found.done(ActKind.MEMBERS, "anna", payload=listed(number=2, roles=roles))
    assert (study(found).phase, study(found).taking_part) == (StudyPhase.READY, ("clinic-a", "clinic-b"))
    assert refused_by(found, ActKind.WITHDRAWN, "clinic-c") is RecordCheck.AUTHOR


def test_results_are_for_the_lead_who_asked_and_who_took_part() -> None:
    found = play(needed=2)
    found.approved("clinic-a", "clinic-b")
    members = found.record.consortium.members
    shown = {name for name, member in members.items() if study(found).shows_result_to(member)}
    assert shown == {"anna", "bert", "clinic-a", "clinic-b"}
    archive = {name for name, member in members.items() if study(found).is_open_to(member)}
    assert archive == {"anna", "bert", "clinic-a", "clinic-b", "clinic-c"}
