"""What a standing site does next: each rule; and that sites with different orders do not wait for each other."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collaborator.standing.schedule import (
    END_TIME,
    HubPhase,
    RunningStudy,
    SiteSaid,
    StepKind,
    StudyFacts,
    StudyStep,
    after_failure,
    next_steps,
)
from fedfair.consent.decisions import ConsentState
from fedfair.policy.site_settings import DiskSection, HoursSection, SiteSettings

NOON = datetime(2027, 3, 1, 12, tzinfo=UTC)
READY = StudyFacts("heart", HubPhase.OPEN, 4, is_here=True, consent=ConsentState.APPROVED, said=SiteSaid.APPROVED)


def acts(*studies: StudyFacts, now: datetime = NOON, has_room: bool = True, **settings: object) -> list[StudyStep]:
    return list(next_steps(studies, SiteSettings(**settings), now, has_room=has_room))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"is_here": False, "said": SiteSaid.NOTHING, "consent": ConsentState.WAITING}, StepKind.FETCH),
        ({"said": SiteSaid.NOTHING}, StepKind.APPROVE),
        ({"said": SiteSaid.NOTHING, "consent": ConsentState.REFUSED}, StepKind.REFUSE),
        ({"said": SiteSaid.NOTHING, "consent": ConsentState.WITHDRAWN}, StepKind.REFUSE),
        ({"consent": ConsentState.WITHDRAWN}, StepKind.WITHDRAW),
        ({"said": SiteSaid.NOTHING, "is_refused_here": True}, StepKind.REFUSE),
        ({}, StepKind.START),
    ],
)
def test_one_study_has_one_next_step(changes: dict[str, object], expected: StepKind) -> None:
    assert [step.act for step in acts(replace(READY, **changes))] == [expected]


@pytest.mark.parametrize(
    "changes",
    [
        {"said": SiteSaid.NOTHING, "consent": ConsentState.WAITING},
        {"hub": HubPhase.PROPOSED},
        {"said": SiteSaid.REFUSED, "consent": ConsentState.REFUSED},
        {"said": SiteSaid.WITHDRAWN, "consent": ConsentState.WITHDRAWN},
        {"consent": ConsentState.WAITING},
        {"is_done": True},
        {"resumes": NOON + timedelta(seconds=1)},
        {"hub": HubPhase.OVER},
        {"running": RunningStudy(None, NOON)},
    ],
)
def test_nothing_is_to_be_done(changes: dict[str, object]) -> None:
    assert acts(replace(READY, **changes)) == []


def test_without_room_nothing_is_fetched_and_what_was_never_approved_goes_first() -> None:
    over = [replace(READY, name=str(order), order=order, hub=HubPhase.OVER) for order in range(3)]
    over[2] = replace(over[2], said=SiteSaid.REFUSED)
    new = StudyFacts("heart", HubPhase.PROPOSED, 9)
    assert acts(*over, new, has_room=False) == [StudyStep(StepKind.TIDY, "2")]
    over[2] = replace(over[2], is_tidied=True)
    assert acts(*over, new, has_room=False) == [StudyStep(StepKind.TIDY, "0")]
    assert acts(*over, new) == [StudyStep(StepKind.FETCH, "heart")]


@pytest.mark.parametrize(
    "changes",
    [
        {"consent": ConsentState.WITHDRAWN},
        {"consent": ConsentState.REFUSED},
        {"hub": HubPhase.OVER},
        {"said": SiteSaid.WITHDRAWN},
    ],
)
def test_a_running_study_stops_at_once_where_it_may_not_go_on(changes: dict[str, object]) -> None:
    running = replace(READY, running=RunningStudy(None, NOON - END_TIME), **changes)
    assert StepKind.STOP in [step.act for step in acts(running)]
    stopping = replace(running, running=RunningStudy(None, NOON, stopping=True))
    assert StepKind.STOP not in [step.act for step in acts(stopping)]


def test_a_process_hears_the_end_of_its_study_by_itself() -> None:
    assert acts(replace(READY, running=RunningStudy(None, NOON), hub=HubPhase.OVER)) == []


def test_as_many_run_as_the_site_says_in_the_order_of_the_hub() -> None:
    studies = [replace(READY, name=name, order=order) for name, order in (("c", 9), ("a", 5), ("b", 7))]
    assert acts(*studies, at_once=2) == [StudyStep(StepKind.START, "a"), StudyStep(StepKind.START, "b")]
    assert acts(*studies, at_once=2, first=("c",)) == [
        StudyStep(StepKind.START, "c"),
        StudyStep(StepKind.START, "a"),
    ]


def test_a_study_has_a_gpu_for_itself_until_its_process_has_ended() -> None:
    held = replace(READY, name="old", order=1, running=RunningStudy(2, NOON, stopping=True), hub=HubPhase.OVER)
    studies = [held, replace(READY, name="a", order=5), replace(READY, name="b", order=7)]
    starts = [step for step in acts(*studies, at_once=3, gpus=(0, 2, 3)) if step.act is StepKind.START]
    assert starts == [StudyStep(StepKind.START, "a", 0), StudyStep(StepKind.START, "b", 3)]


def test_a_study_that_does_not_move_gives_its_place_to_an_older_one_that_waits() -> None:
    still = replace(READY, running=RunningStudy(None, NOON - timedelta(minutes=10)))
    older, younger = replace(READY, name="stroke", order=2), replace(READY, name="stroke", order=8)
    assert acts(still, older, yield_after_minutes=11.0) == []
    assert acts(still, older, yield_after_minutes=10.0)[0].act is StepKind.STOP
    assert acts(still, younger, yield_after_minutes=10.0) == []
    assert acts(still, yield_after_minutes=10.0) == []


def test_the_oldest_study_comes_first_after_one_has_given_its_place_away() -> None:
    younger = replace(READY, name="a", order=3, gave_way=True)
    liked, oldest = replace(READY, name="liked", order=2), replace(READY, name="old", order=1)
    assert acts(younger, liked, oldest, first=("liked",)) == [StudyStep(StepKind.START, "old")]
    assert acts(replace(younger, gave_way=False), liked, oldest, first=("liked",)) == [
        StudyStep(StepKind.START, "liked")
    ]


@pytest.mark.parametrize(
    ("begin", "end", "hour", "runs"),
    [
        ("18:00", "6:00", 17, False),
        ("18:00", "6:00", 23, True),
        ("18:00", "6:00", 5, True),
        ("8:00", "12:00", 12, False),
    ],
)
def test_studies_run_in_the_hours_of_the_site(begin: str, end: str, hour: int, runs: bool) -> None:
    now, hours = NOON.replace(hour=hour), {"begin": begin, "end": end}
    begun = acts(READY, now=now, hours=HoursSection(**hours))
    assert bool(begun) is runs
    running = replace(READY, running=RunningStudy(None, now))
    assert acts(running, now=now, hours=HoursSection(**hours)) == []
    stopped = acts(running, now=now, hours=HoursSection(**hours, outside="stop"))
    assert bool(stopped) is not runs


def test_waiting_grows_with_each_failure_and_has_an_end() -> None:
    waits = [(after_failure(count, NOON) - NOON).total_seconds() for count in (1, 2, 5, 9, 10, 100)]
    assert waits == [1, 2, 16, 256, 300, 300]


@given(st.data())
def test_sites_with_different_orders_finish_every_study(data: st.DataObject) -> None:
    """A study moves only while every one of its sites runs it; each has one place, and prefers what it likes."""
    names = [f"s{index}" for index in range(data.draw(st.integers(1, 5), "studies"))]
    sites = range(data.draw(st.integers(2, 4), "sites"))
    settings = [
        SiteSettings(first=tuple(data.draw(st.permutations(names), "order")), yield_after_minutes=float(1 + site))
        for site in sites
    ]
    left = dict.fromkeys(names, data.draw(st.integers(1, 3), "sums"))
    facts = [{name: replace(READY, name=name, order=index) for index, name in enumerate(names)} for _ in sites]
    now, minutes = NOON, 0
    while any(left.values()):
        minutes += 1
        assert minutes < 1000, "the sites wait for each other"
        now += timedelta(minutes=1)
        for site in sites:
            for step in next_steps(facts[site].values(), settings[site], now):
                study = facts[site][step.study]
                if step.act is StepKind.START:
                    facts[site][step.study] = replace(study, running=RunningStudy(None, now), gave_way=False)
                elif step.act is StepKind.STOP:
                    facts[site][step.study] = replace(study, running=None, gave_way=step.gives_way)
        for name in names:
            if left[name] and all(facts[site][name].running for site in sites):
                left[name] -= 1
                for site in sites:
                    study = facts[site][name]
                    over = replace(study, running=None, hub=HubPhase.OVER)
                    facts[site][name] = replace(study, running=RunningStudy(None, now)) if left[name] else over


def test_the_disk_has_a_limit_by_default() -> None:
    assert SiteSettings().disk == DiskSection(limit_gib=50.0)
