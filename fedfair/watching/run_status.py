"""The status of a run as one value, the same for an aggregator and for a site.

The classes of `fedfair.news` change it by the functions at the end of this module; the JSON document, the metrics
and the page are made of it, and of nothing else. It holds what the operator reads anyway: the figures of
`result.json`, and what the notes say. It has no place for the loss of one site or of one record. Pure: time is an
argument.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from fedfair.plan.losses import NATS

MAX_NOTES = 30
"""Notes that are shown; all of them are in the log."""

MAX_HISTORY = 128
"""Evaluations that are drawn; of a longer run every second one, then every fourth, and so on."""

RATE_ROUNDS = 30
"""The rate is that of so many of the last rounds."""

NO_SUM = "waiting"
"""The phase in which no sum is open."""

Totals = Mapping[str, Mapping[tuple[str, ...], float]]
"""For each counter, by the name that it has in the metrics without its prefix, its value by the label's values."""


class WatchedState(enum.Enum):
    """Where a run stands; the value is the word that is shown."""

    STARTING = "starting"
    WAITING = "waiting"
    RUNNING = "running"
    STOPPING = "stopping"
    OVER = "over"


@dataclass(frozen=True, slots=True)
class SumStep:
    """The step of the sum that is open, or that none is.

    Attributes:
        purpose: of the sum, in the plan's word; empty where no sum is open.
        round: of the sum.
        attempt: from 1; 0 where no sum is open.
        phase: what the sum waits for, such as uploads; `NO_SUM` where no sum is open.
        until: when its patience ends, with a time zone; None where nothing ends it.
    """

    purpose: str
    round: int
    attempt: int
    phase: str
    until: datetime | None


IDLE = SumStep("", 0, 0, NO_SUM, None)


@dataclass(frozen=True, slots=True)
class RecentNote:
    """One sentence to the operator, and when it was said."""

    at: datetime
    words: str


@dataclass(frozen=True, slots=True)
class PooledFigures:
    """The figures of one split over all sites together; accuracy in [0, 1]; None for too few."""

    mean: float | None
    worst: float | None
    accuracy: float | None


@dataclass(frozen=True, slots=True)
class PooledEvaluation:
    """An evaluation over all sites together.

    Attributes:
        round: after which the model was evaluated.
        splits: by the name of the split.
    """

    round: int
    splits: Mapping[str, PooledFigures]

    @property
    def shown(self) -> tuple[str, PooledFigures] | None:
        """Return the split that speaks for people the model never saw, or the training split without one."""
        for name in ("test", "validation", "train"):
            if name in self.splits:
                return name, self.splits[name]
        return None


@dataclass(frozen=True, slots=True)
class RunStatus:
    """The status of a run.

    Attributes:
        role: aggregator or collaborator.
        name: of the participant that shows it.
        federation: its name.
        rounds_total: training rounds of the plan; 0 where it trains nothing.
        worst_group_size: the group size of the objective, in (0, 1].
        loss_unit: of the losses, as the plan's `task.loss` has it.
        sites: whose connection is shown: the collaborators, or at a site the aggregator alone.
        started: when this process began, with a time zone.
        run_id: names the run; empty before it is known.
        state: where it stands.
        rounds_done: training rounds that are done.
        step: of the sum that is open.
        step_since: until when its seconds are counted; None before anything was counted.
        connected: who is connected, in the order of `sites`.
        awaited: who is waited for, and since when.
        awaited_until: when the waiting ends, while no sum is open.
        waiting_words: the same in a sentence, and what happens then; empty where no site is waited for.
        withdrawn: who left for good, and why.
        evaluation: the last one; None before the first.
        history: overall loss and that of the worst group in evaluations on the way: rounds, means, worsts.
        stride: how many evaluations stand for one of `history`.
        evaluations: how many there were in this process.
        round_ends: when the last rounds ended, the oldest first.
        certificate_ends: when the certificate of this side's connections ends; None where it is not known.
        notes: the last ones, the oldest first.
        totals: counters of this process.
        awaited_seconds: how long each site was waited for, by phase.
        answer_seconds: how long each site took for its last contribution.
        median_answer_seconds: over the contributions of the last sum; None before the first.
        behind: whom sums continued without, though it was connected, and since when; until it contributes again.
    """

    role: str
    name: str
    federation: str
    rounds_total: int
    worst_group_size: float
    sites: tuple[str, ...]
    started: datetime
    loss_unit: str = NATS
    run_id: str = ""
    state: WatchedState = WatchedState.STARTING
    rounds_done: int = 0
    step: SumStep = IDLE
    step_since: datetime | None = None
    connected: tuple[str, ...] = ()
    awaited: Mapping[str, datetime] = field(default_factory=dict)
    awaited_until: datetime | None = None
    waiting_words: str = ""
    withdrawn: Mapping[str, str] = field(default_factory=dict)
    evaluation: PooledEvaluation | None = None
    history: tuple[tuple[int, float, float], ...] = ()
    stride: int = 1
    evaluations: int = 0
    round_ends: tuple[datetime, ...] = ()
    certificate_ends: datetime | None = None
    notes: tuple[RecentNote, ...] = ()
    totals: Totals = field(default_factory=dict)
    awaited_seconds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    answer_seconds: Mapping[str, float] = field(default_factory=dict)
    median_answer_seconds: float | None = None
    behind: Mapping[str, datetime] = field(default_factory=dict)

    def total(self, counter: str, *labels: str) -> float:
        """Return the value of a counter; 0 where it was never raised."""
        return self.totals.get(counter, {}).get(labels, 0.0)

    @property
    def rounds_per_second(self) -> float | None:
        """Return the rate of the last rounds; None before the second one of this process."""
        if len(self.round_ends) < 2:
            return None
        seconds = _between(self.round_ends[0], self.round_ends[-1])
        return (len(self.round_ends) - 1) / seconds if seconds > 0 else None

    def last_round_age(self, now: datetime) -> float | None:
        """Return the seconds since the last round of this process; None before the first."""
        return _between(self.round_ends[-1], now) if self.round_ends else None

    def certificate_days(self, now: datetime) -> int | None:
        """Return the whole days until the certificate ends, negative after it; None where that is not known."""
        return None if self.certificate_ends is None else (self.certificate_ends - now) // timedelta(days=1)

    @property
    def until(self) -> datetime | None:
        """Return when the present waiting ends; None where nothing ends it."""
        return self.awaited_until if self.step.phase == NO_SUM else self.step.until


def counted(status: RunStatus, counter: str, *labels: str, by: float = 1.0) -> RunStatus:
    """Return the status with a counter raised.

    Args:
        status: before.
        counter: its name in the metrics, without prefix and suffix.
        labels: the values of its labels.
        by: how much, at least 0.
    """
    before = status.totals.get(counter, {})
    return replace(status, totals={**status.totals, counter: {**before, labels: before.get(labels, 0.0) + by}})


def noted(status: RunStatus, words: str, now: datetime) -> RunStatus:
    """Return the status with a note."""
    return replace(status, notes=(*status.notes[1 - MAX_NOTES :], RecentNote(now, words)))


def stepped(status: RunStatus, step: SumStep, now: datetime) -> RunStatus:
    """Return the status in another step of a sum, with the seconds of the one before counted."""
    if replace(step, until=status.step.until) == status.step and status.state is not WatchedState.STARTING:
        return status if step == status.step else replace(status, step=step)
    status = up_to(status, now)
    state = status.state
    if state is not WatchedState.STOPPING:
        state = WatchedState.WAITING if step.phase == NO_SUM else WatchedState.RUNNING
    words, until = (status.waiting_words, status.awaited_until) if step.phase == NO_SUM else ("", None)
    return replace(status, step=step, step_since=now, state=state, waiting_words=words, awaited_until=until)


def up_to(status: RunStatus, now: datetime) -> RunStatus:
    """Return the status with the seconds of the step that is under way counted until now."""
    status = _with_awaited_counted(status, status.awaited.keys(), now)
    seconds = _between(status.step_since or status.started, now)
    status = counted(status, "phase_seconds", status.step.purpose, status.step.phase, by=seconds)
    return replace(status, step_since=now, awaited=dict.fromkeys(status.awaited, now))


def attended(status: RunStatus, present: tuple[str, ...], awaited: tuple[str, ...], now: datetime) -> RunStatus:
    """Return the status with who is there now, with the seconds of those who are awaited no longer counted.

    Args:
        status: before.
        present: who is connected, in the plan's order.
        awaited: who is waited for, in the plan's order.
        now: the time, with a time zone.
    """
    if present != status.connected:
        status = replace(status, connected=present)
    if awaited == tuple(status.awaited):
        return status
    status = _with_awaited_counted(status, status.awaited.keys() - set(awaited), now)
    return replace(status, awaited={who: status.awaited.get(who, now) for who in awaited})


def evaluated(status: RunStatus, evaluation: PooledEvaluation) -> RunStatus:
    """Return the status with one more evaluation; a long history keeps every second one of its points."""
    status = replace(status, evaluation=evaluation, evaluations=status.evaluations + 1)
    shown = evaluation.shown
    if shown is None or shown[1].mean is None or shown[1].worst is None:
        return status
    if (status.evaluations - 1) % status.stride:
        return status
    history, stride = (*status.history, (evaluation.round, shown[1].mean, shown[1].worst)), status.stride
    if len(history) > MAX_HISTORY:
        history, stride = history[::2], 2 * stride
    return replace(status, history=history, stride=stride)


def round_ended(status: RunStatus, rounds_done: int, now: datetime) -> RunStatus:
    """Return the status after one more round."""
    return replace(status, rounds_done=rounds_done, round_ends=(*status.round_ends[1 - RATE_ROUNDS :], now))


def summed(status: RunStatus, purpose: str, seconds: float, received: int, sent: int) -> RunStatus:
    """Return the status with one more sum.

    Args:
        status: before.
        purpose: of the sum.
        seconds: that it took.
        received: bytes that arrived here for it.
        sent: bytes that left here for it.
    """
    status = counted(status, "sums", purpose)
    status = counted(status, "sum_seconds", purpose, by=seconds)
    status = counted(status, "received_bytes", purpose, by=received)
    return counted(status, "sent_bytes", purpose, by=sent)


def answered(
    status: RunStatus, seconds: Mapping[str, float], median: float | None, left_behind: Collection[str] = ()
) -> RunStatus:
    """Return the status with how long sites took; who took part and was not left behind has caught up.

    Args:
        status: before.
        seconds: by site.
        median: over all of them; None where it is not known.
        left_behind: who was not waited for.
    """
    behind = {who: at for who, at in status.behind.items() if who not in seconds or who in left_behind}
    return replace(
        status,
        answer_seconds={**status.answer_seconds, **seconds},
        median_answer_seconds=status.median_answer_seconds if median is None else median,
        behind=behind,
    )


def left_behind(status: RunStatus, who: str, now: datetime) -> RunStatus:
    """Return the status with a sum that continued without a connected site."""
    status = counted(status, "left_behind_answers", who)
    return replace(status, behind={**status.behind, who: status.behind.get(who, now)})


def over(status: RunStatus, now: datetime) -> RunStatus:
    """Return the status at the end of this process, with every second counted."""
    return replace(stepped(status, IDLE, now), state=WatchedState.OVER, awaited={}, waiting_words="")


def _with_awaited_counted(status: RunStatus, who: Collection[str], now: datetime) -> RunStatus:
    if not who:
        return status
    phase, seconds = status.step.phase, dict(status.awaited_seconds)
    for name in who:
        before = seconds.get(name, {})
        more = _between(status.awaited[name], now)
        seconds[name] = {**before, phase: before.get(phase, 0.0) + more}
    return replace(status, awaited_seconds=seconds)


def _between(earlier: datetime, later: datetime) -> float:
    """Return seconds; none where somebody has set the clock back."""
    return max(0.0, (later - earlier).total_seconds())
