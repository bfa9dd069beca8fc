"""Remembers who was proven to lie in masked sums, for as long as this process runs.

Decides what becomes of a suspicion: a proven liar is sent away, now and whenever it returns; of anybody else the
operator is only told. What proves a lie is `fedfair.secagg.disputes`' business.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from fedfair.rounds.events import Refuse, Suspected
from fedfair.rounds.exit_reasons import TRY_AGAIN, ExitReason
from fedfair.rounds.membership import Presence
from fedfair.rounds.sum_round import Step

if TYPE_CHECKING:
    from fedfair.ids import ParticipantId
    from fedfair.rounds.membership import Membership
    from fedfair.rounds.sum_round import SumRound, Suspicion

_REMEDY = (
    "find out what runs under that name; if most sites are honest, it lies; it is let in again when the "
    "aggregator is started again"
)


class Liars:
    """The proven liars of one run.

    Args:
        members: who is connected; a liar is heard no longer.
    """

    def __init__(self, members: Membership) -> None:
        self._members = members
        self._reasons: dict[ParticipantId, str] = {}

    def __contains__(self, participant: ParticipantId) -> bool:
        return participant in self._reasons

    def send_away(self, participant: ParticipantId) -> Iterator[Refuse]:
        """Refuse a proven liar that is connected; nothing with one that is not."""
        if self._members.presence(participant) is Presence.CONNECTED:
            self._members.refuse(participant)
            yield Refuse(participant, self._reasons[participant], _REMEDY, TRY_AGAIN[ExitReason.MISBEHAVED])

    def blame(self, suspicions: Iterable[Suspicion], sum_round: SumRound | None) -> Iterator[Refuse | Suspected]:
        """Act on what a sum has found: send proven liars away, tell of the others.

        Args:
            suspicions: what was found.
            sum_round: the sum that is open and continues without a liar; None for none.
        """
        for suspicion in suspicions:
            who = suspicion.member
            if not suspicion.proven:
                yield Suspected(who, suspicion.reason)
            elif who not in self:
                self._reasons[who] = suspicion.reason
                if sum_round is not None and who in sum_round.cohort:
                    sum_round.step(who, Step.EXPEL)
                yield from self.send_away(who)
