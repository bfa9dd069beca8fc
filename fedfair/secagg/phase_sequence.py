"""From phase to phase: whom the aggregator has asked, who has answered, who is gone, and whose message is due.

What an answer says, and what follows, is for the phases to decide (`set_up_phases`, `round_phases`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from fedfair.secagg.checks import Check, SecaggError, require
from fedfair.secagg.effects import SendTo, ServerEffect
from fedfair.secagg.masking import MaskedVector
from fedfair.secagg.messages import Kind
from fedfair.secagg.round_phases import Answering
from fedfair.secagg.server_state import EXPECTED, OF_A_ROUND, AskingPhase, Move, Resting, ServerState
from fedfair.secagg.signing import Roster


class PhaseSequence:
    """The present phase, and where its members stand.

    Args:
        roster: the pinned keys of all members.
        at_rest: what to do when nothing more is asked; the phase before is still the present one.

    Attributes:
        phase: the present one.
        received: the digest of each member's answer to it.
        missing: who was asked, has not answered, and is not gone.
        gone: who cannot answer any more, in this phase and later ones.
    """

    def __init__(self, roster: Roster, at_rest: Callable[[Resting], None]) -> None:
        self._roster = roster
        self._at_rest = at_rest
        self.phase: AskingPhase | Resting = Resting(ServerState.IDLE)
        self.received: dict[int, bytes] = {}
        self.missing: set[int] = set()
        self.gone: set[int] = set()

    def enter(self, move: Move) -> list[ServerEffect]:
        """Go into a phase; return what is asked and told, also where it is over at once."""
        phase = move.following
        if isinstance(phase, Resting):
            self._at_rest(phase)
        self.phase, self.received = phase, {}
        self.missing = set() if isinstance(phase, Resting) else phase.asked.keys() - self.gone
        asked = [SendTo(member, message) for member, message in phase.asked.items()]
        return [*move.before, *asked, *self.advance(lost=phase.asked), *move.after]

    def advance(self, *, lost: Collection[int]) -> list[ServerEffect]:
        """Close the present phase where nothing more is to come; `lost` may just have failed to answer rightly."""
        is_decided = isinstance(self.phase, Answering) and self.phase.is_decided(self.missing, lost)
        return [] if self.missing and not is_decided else self.close()

    def close(self) -> list[ServerEffect]:
        """Close the present phase with what there is."""
        return [] if isinstance(self.phase, Resting) else self.enter(self.phase.close())

    def accuse(self, holder: int, owner: int) -> list[ServerEffect]:
        """Note that a member answers nothing, because what another sealed for it does not open; it is gone.

        Raises:
            SecaggError: OUT_OF_ORDER, MEMBERSHIP, LATE or DUPLICATE; nothing changed.
        """
        said, phase = f"member {holder} accuses member {owner}", self.phase
        if not isinstance(phase, Answering):
            raise SecaggError(Check.OUT_OF_ORDER, f"{said} while waiting for {phase.state.value}")
        self._roster.check_pinned(holder)
        require(holder in phase.asked, Check.LATE, f"member {holder} accuses, and is not asked this time")
        heard = holder in self.received or holder in self.gone
        require(not heard, Check.DUPLICATE, f"{said} after its answer or refusal")
        return [*phase.accuse(holder, owner), *self.leave(holder)]

    def take(self, kind: Kind, sender: int, raw: bytes, seen: bytes, vector: MaskedVector) -> list[ServerEffect]:
        """Take one message of the present phase; return what follows.

        Args:
            kind: of the message.
            sender: roster index behind the peer's certificate.
            raw: the message.
            seen: its digest.
            vector: what travelled beside it.

        Raises:
            SecaggError: the message was refused; nothing changed.
        """
        told = self._due(kind, sender).take(sender, raw, vector)
        self.received[sender] = seen
        self.missing.discard(sender)
        self.gone.discard(sender)
        return [*told, *self.advance(lost=(sender,) if told else ())]

    def leave(self, member: int) -> list[ServerEffect]:
        """Note that a member is gone; a phase that waits only for it is closed."""
        self.gone.add(member)
        self.missing.discard(member)
        return self.advance(lost=(member,)) if member in self.phase.asked else []

    def come_back(self, member: int) -> list[ServerEffect]:
        """Note that a member is back; return what it was asked and has not answered, byte for byte."""
        self.gone.discard(member)
        if member not in self.phase.asked or member in self.received:
            return []
        self.missing.add(member)
        return [SendTo(member, self.phase.asked[member])]

    def _due(self, kind: Kind, sender: int) -> AskingPhase:
        """Return the phase, if this message of this member is due in it."""
        said, state = f"{kind.name} of member {sender}", self.phase.state
        if isinstance(self.phase, Resting) or kind is not EXPECTED[state]:
            late = Check.LATE if kind in OF_A_ROUND else Check.OUT_OF_ORDER
            raise SecaggError(late, f"{said} while waiting for {state.value}")
        self._roster.check_pinned(sender)
        require(sender in self.phase.asked, Check.LATE, f"{said}, who is not asked this time")
        require(sender not in self.received, Check.DUPLICATE, f"a second, different {said}")
        return self.phase
