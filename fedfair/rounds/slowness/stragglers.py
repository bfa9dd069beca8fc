"""How long a sum waits for those who have not answered when enough others have, and when they are asked again.

Two rules, and no clock: the time is an argument.

Closing. Answers are timed from the moment in which a step of a sum began: uploads, keys, votes. The median is over
sites: only each site's latest response time counts, so a slow half is never left behind by a quick one. A step
that enough have answered closes after `FACTOR` medians, and not before `MIN_SECONDS`. Where a sum cannot be opened
without those who are late, and would have to be repeated, it is `FACTOR_OF_ALL` medians. A step that was never
timed waits for the deadline of the plan.

Asking again. Who was left behind is asked nothing more until it has answered, or has come back on a new stream.
Then it is asked as soon as the run can afford the time that it takes. A `SHARE` of the time that sums take is
saved up, never more than one deadline, and a wait for somebody who was left behind is paid from it. So a site that
is a little too slow takes part in some rounds, one that never answers in fewer and fewer, and both together cost
the others no more than that share. In the last round all sites are asked that have answered: see `late_members`.

Broken lines. Who has lost its connection is waited for as long as the plan says, while its own account lasts: two
such waits, and a share of the time that sums take. Then, and where its line breaks every few seconds, a sum that
enough have answered waits for it as for anybody who is late.

Short rounds. `MIN_SECONDS` may be many medians. Whoever makes sums wait beyond `FACTOR` medians time and again
has used up its account of such waits, and is given `FRAIL_MIN_SECONDS`.

None of this is anything that a site computes with: as ever, the aggregator chooses whom it asks, and each sum says
who is in it.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from fedfair.ids import ParticipantId, SumNumber

MIN_SECONDS: Final = 2.0
"""The shortest patience: a pause of a process or a lost packet leaves nobody behind."""

FACTOR: Final = 3.0
"""Medians that a step may take where the sum continues without those who are late."""

FACTOR_OF_ALL: Final = 10.0
"""Medians that a step may take where the sum has to be repeated without those who are late."""

SHARE: Final = 0.25
"""Of the time that sums take: the time that may be spent on those who were left behind."""

FRAIL_BREAKS: Final = 2
FRAIL_SECONDS: Final = 60.0
"""A line is frail that broke so often in so many seconds."""

FRAIL_MIN_SECONDS: Final = 0.25
"""The shortest patience with sites whose lines are frail, and with those that are often a little late."""

AWAY_SHARE: Final = 0.1
"""Of the time that sums take: the time that may be spent on waiting for the return of any one participant."""

LATE_SECONDS: Final = 10.0
"""Seconds of waiting beyond a few medians, though within the shortest patience, that each participant may cost."""

LATE_SHARE: Final = 0.05
"""Of the time that sums take: the time that it may cost in this way afterwards."""

AWAY_WAITS: Final = 2
"""Waits for its return, as long as the plan allows, that a participant has at the beginning, and at most."""

MARGIN: Final = 1.25
"""A site that was late by so much is given so many times as much the next time."""


@dataclass(frozen=True, slots=True)
class Question:
    """One step of one sum.

    Attributes:
        sum_number: of which sum.
        purpose: of the sum; empty where the step is the same for all purposes, as setting up a session is.
        step: what is asked for, in a word.
        needs_all: whether the sum is repeated if somebody does not answer.
    """

    sum_number: SumNumber
    purpose: str
    step: str
    needs_all: bool

    @property
    def kind(self) -> tuple[str, str]:
        """Return what has comparable answer times."""
        return self.purpose, self.step


@dataclass(frozen=True, slots=True)
class Lateness:
    """How late somebody is.

    Attributes:
        seconds: since it was asked.
        median: what the sites took for such a step, by their last answers; None where none was timed.
    """

    seconds: float
    median: float | None


@dataclass(slots=True)
class _Step:
    question: Question
    began: float
    enough_at: float | None = None
    is_trial: bool = False
    away: dict[ParticipantId, float] = field(default_factory=dict)


@dataclass(slots=True)
class _Owing:
    kind: tuple[str, str]
    asked_at: float
    usual: float


@dataclass(slots=True)
class _Timed:
    """Of one sum: when it began, what its waits for stragglers cost, and its answers to the request itself."""

    began: float
    charged: float = 0.0
    answers: dict[ParticipantId, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SumPace:
    """The answers of one sum, for the metrics and the status.

    Attributes:
        answers: how many seconds each took that contributed in time; empty where no site was timed.
        left_behind: who was not waited for.
    """

    answers: Mapping[ParticipantId, float] = field(default_factory=dict)
    left_behind: tuple[ParticipantId, ...] = ()

    @property
    def median(self) -> float | None:
        """Return the median of the seconds; None where no site was timed."""
        return statistics.median(self.answers.values()) if self.answers else None

    @property
    def slowest(self) -> tuple[ParticipantId, float] | None:
        """Return who took longest, and how many seconds; None where no site was timed."""
        return max(self.answers.items(), key=lambda one: one[1], default=None)


NOT_TIMED: Final = SumPace()


class Stragglers:
    """The rules of one run.

    Args:
        clock: seconds since any fixed moment.
        quorum: how many answers make a median.
        longest_seconds: the deadline of the plan; no patience is longer.
        grace_seconds: how long the plan waits for the return of a lost connection.

    Attributes:
        pace: of the sum that closed last.
    """

    def __init__(
        self, clock: Callable[[], float], quorum: int, longest_seconds: float, grace_seconds: float
    ) -> None:
        self._clock = clock
        self._quorum = quorum
        self._longest = longest_seconds
        self._away_most = AWAY_WAITS * grace_seconds
        self._away_spent: dict[ParticipantId, float] = {}
        self._late_spent: dict[ParticipantId, float] = {}
        self._breaks: dict[ParticipantId, deque[float]] = {}
        self._last: dict[tuple[str, str], dict[ParticipantId, float]] = {}
        self._step: _Step | None = None
        self._sum: _Timed | None = None
        self._left: list[ParticipantId] = []
        self._owing: dict[ParticipantId, _Owing] = {}
        self._needs: dict[ParticipantId, dict[tuple[str, str], float]] = {}
        self._saved = 0.0
        self.pace = NOT_TIMED

    # -------------------------------------------------------------- one sum

    def begin(self, question: Question, awaited: Collection[ParticipantId]) -> bool:
        """Note what is asked now; return whether it is another step than before.

        Args:
            question: the step.
            awaited: who has not answered it.
        """
        if self._step is not None and self._step.question == question:
            return False
        now = self._clock()
        self._end_step(now)
        if self._sum is None:
            self._sum = _Timed(now)
        self._step = _Step(question, now, is_trial=any(self._need(who, question.kind) for who in awaited))
        return True

    def answered(self, who: ParticipantId) -> None:
        """Note an answer to the present step that came in time."""
        step = self._step
        if step is None:
            return
        now, usual = self._clock(), self._usual(step.question, FRAIL_MIN_SECONDS)
        seconds = now - step.began
        if step.enough_at is not None and usual is not None:
            cost = now - max(step.enough_at, step.began + usual)
            self._late_spent[who] = self._late_spent.get(who, 0.0) + max(0.0, cost)
        self._time(step.question.kind, who, seconds)
        if self._sum is not None and step.question.purpose:
            self._sum.answers.setdefault(who, seconds)
        if self._need(who, step.question.kind):
            self._reckon(who, step.question.kind, seconds, self._usual(step.question, self._least(who)))

    def patience(self, awaited: Collection[ParticipantId]) -> float | None:
        """Return for how many seconds from now the step, which enough have answered, waits for the others.

        Args:
            awaited: who has not answered.

        Returns:
            The seconds; None where only the plan's deadline ends the wait.
        """
        step = self._step
        least = max(map(self._least, awaited), default=MIN_SECONDS)
        usual = None if step is None else self._usual(step.question, least)
        if step is None or usual is None:
            return None
        now = self._clock()
        if step.enough_at is None:
            step.enough_at = now
        whole = usual + max((self._need(who, step.question.kind) for who in awaited), default=0.0)
        return max(least, whole - (now - step.began))

    def leave_behind(self, late: Collection[ParticipantId]) -> dict[ParticipantId, Lateness]:
        """Note that a step closes without these, who are connected; return how late they are."""
        step = self._step
        if step is None or not late:
            return {}
        now, kind = self._clock(), step.question.kind
        waited, median = now - step.began, self._median(kind)
        for who in late:
            usual = self._usual(step.question, self._least(who))
            self._owing[who] = _Owing(kind, step.began, waited if usual is None else usual)
            # What it needs is not known before it has answered: next time it gets twice what it had.
            needed = max(waited, MIN_SECONDS, 2 * self._need(who, kind))
            self._needs.setdefault(who, {})[kind] = min(needed, self._longest)
            self._left.append(who)
        step.is_trial = True
        return dict.fromkeys(late, Lateness(waited, median))

    def close(self) -> None:
        """Note that the sum is over, opened or lost."""
        now, timed = self._clock(), self._sum
        self._end_step(now)
        if timed is not None:
            self._saved += SHARE * (now - timed.began - timed.charged) - timed.charged
            self._saved = min(max(self._saved, -self._longest), self._longest)
            self._away_spent = _repaid(self._away_spent, AWAY_SHARE * (now - timed.began))
            self._late_spent = _repaid(self._late_spent, LATE_SHARE * (now - timed.began))
            self.pace = SumPace(timed.answers, tuple(self._left))
        self._sum, self._left = None, []

    # -------------------------------------------------------------- those who were left behind

    def owes(self, who: ParticipantId) -> bool:
        """Return whether somebody was left behind and has not answered since."""
        return who in self._owing

    def caught_up(self, who: ParticipantId) -> Lateness:
        """Note the answer, of whatever kind, of somebody who was left behind; return how long it took."""
        owed = self._owing.pop(who)
        seconds = self._clock() - owed.asked_at
        self._time(owed.kind, who, seconds)
        self._reckon(who, owed.kind, seconds, owed.usual)
        return Lateness(seconds, self._median(owed.kind))

    def gone(self, who: ParticipantId) -> None:
        """Note that somebody's stream has ended: what it was asked on it will not be answered."""
        self._owing.pop(who, None)
        self._breaks.setdefault(who, deque(maxlen=FRAIL_BREAKS)).append(self._clock())

    def is_frail(self, who: ParticipantId) -> bool:
        """Return whether somebody's streams have ended several times of late."""
        breaks = self._breaks.get(who)
        if breaks is None or len(breaks) < FRAIL_BREAKS:
            return False
        return self._clock() - breaks[0] <= FRAIL_SECONDS

    def _least(self, who: ParticipantId) -> float:
        is_costly = self.is_frail(who) or self._late_spent.get(who, 0.0) >= LATE_SECONDS
        return FRAIL_MIN_SECONDS if is_costly else MIN_SECONDS

    def note_away(self, away: Collection[ParticipantId]) -> None:
        """Note whose return alone, besides those who are late, a step waits for that enough have answered."""
        step, now = self._step, self._clock()
        if step is not None:
            self._charge_away(step.away.keys() - set(away), step, now)
            for who in away:
                step.away.setdefault(who, now)

    def is_waited_for(self, who: ParticipantId) -> bool:
        """Return whether its account and its line allow to wait for the return of somebody who is away."""
        return not self.is_frail(who) and self._away_spent.get(who, 0.0) < self._away_most

    def _charge_away(self, back: Collection[ParticipantId], step: _Step, now: float) -> None:
        for who in back:
            self._away_spent[who] = self._away_spent.get(who, 0.0) + now - step.away.pop(who)

    @property
    def owing(self) -> frozenset[ParticipantId]:
        """Return who was left behind and has not answered since."""
        return frozenset(self._owing)

    @property
    def resting(self) -> frozenset[ParticipantId]:
        """Return who is not asked now, if the others are enough."""
        unaffordable = {who for who, needs in self._needs.items() if max(needs.values()) > self._saved}
        return frozenset(self._owing.keys() | unaffordable)

    # -------------------------------------------------------------- arithmetic

    def _time(self, kind: tuple[str, str], who: ParticipantId, seconds: float) -> None:
        self._last.setdefault(kind, {})[who] = seconds

    def _median(self, kind: tuple[str, str]) -> float | None:
        timed = self._last.get(kind, {})
        return statistics.median(timed.values()) if len(timed) >= self._quorum else None

    def _usual(self, question: Question, least: float) -> float | None:
        median = self._median(question.kind)
        factor = FACTOR_OF_ALL if question.needs_all else FACTOR
        return None if median is None else min(max(least, factor * median), self._longest)

    def _need(self, who: ParticipantId, kind: tuple[str, str]) -> float:
        return self._needs.get(who, {}).get(kind, 0.0)

    def _reckon(self, who: ParticipantId, kind: tuple[str, str], seconds: float, usual: float | None) -> None:
        """Note what somebody needs beyond the usual, now that its time is known; nothing where that is enough."""
        needs = self._needs.setdefault(who, {})
        if usual is not None and seconds > usual:
            needs[kind] = min(MARGIN * seconds - usual, self._longest)
        else:
            needs.pop(kind, None)
        if not needs:
            del self._needs[who]

    def _end_step(self, now: float) -> None:
        step, self._step = self._step, None
        if step is not None:
            self._charge_away(tuple(step.away), step, now)
        if step is not None and step.is_trial and step.enough_at is not None and self._sum is not None:
            self._sum.charged += now - step.enough_at


def _repaid(spent: Mapping[ParticipantId, float], seconds: float) -> dict[ParticipantId, float]:
    return {who: left for who, before in spent.items() if (left := before - seconds) > 0}
