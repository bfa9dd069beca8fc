"""Continues a run after a restart: where new sum numbers begin, and whether sites are ahead of the journal.

Sum numbers must never repeat and must always grow, also where an old copy of the journal was restored: so each
process of the aggregator takes them from a block of its own, by the clock. Each site says when it connects which
number and which round it has seen.

One site alone could say anything. A statement about the run is believed only where more than the plan's number of
colluders say at least as much, so that one honest site vouches for it; what fewer say is reported to the operator,
and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedfair.errors import FedfairError
from fedfair.ids import SumNumber

if TYPE_CHECKING:
    from fedfair.ids import ParticipantId

MAX_NUMBER = 2**63 - 1
"""The largest that the wire carries."""

NO_NUMBER = SumNumber(0)

EPOCH_SECONDS = 1_577_836_800
"""The first of January 2020; numbers are counted from there, and last until 2089."""

BLOCK_BITS = 22
"""Sum numbers for each millisecond: a process makes far fewer, so a later one begins above all of its numbers."""

SPARE_NUMBERS = 1 << 40
"""How far a process whose clock went back begins above the block before: more sums than a run has."""


def first_block(seconds: float, earlier: SumNumber) -> SumNumber:
    """Return the number before the first sum of a process that starts now.

    Args:
        seconds: since 1970, by this machine's clock.
        earlier: the same of the last process that the journal knows; 0 for none.

    Raises:
        FedfairError: the clock is beyond the numbers of the wire.
    """
    by_clock = max(0, int((seconds - EPOCH_SECONDS) * 1000)) << BLOCK_BITS
    number = by_clock if by_clock > earlier else earlier + SPARE_NUMBERS
    if number > MAX_NUMBER - SPARE_NUMBERS:
        raise FedfairError(
            f"the clock says {seconds:.0f} s since 1970, which is beyond the year 2088", "set this machine's clock"
        )
    return SumNumber(number)


@dataclass(frozen=True, slots=True)
class Seen:
    """The last request to a site's process before it connected.

    Attributes:
        sum_number: the newest sum; 0 for none.
        run_id: the run; empty for none.
        rounds_done: training rounds that were behind that run then.
    """

    sum_number: SumNumber = NO_NUMBER
    run_id: str = ""
    rounds_done: int = 0


NOTHING_SEEN = Seen()


@dataclass(frozen=True, slots=True)
class Continued:
    """An earlier process worked on this run.

    Attributes:
        run_id: the run, as the journal names it.
        rounds_done: by the journal.
        tolerated: rounds that a crash may have cost the journal.
        vouchers: sites that must say the same before it is believed; more than may collude.
        repeats_rounds: whether the operator wants the rounds that were lost to be repeated.
        cannot_repeat: why they cannot be repeated; empty where they can.
    """

    run_id: str
    rounds_done: int
    tolerated: int
    vouchers: int
    repeats_rounds: bool = False
    cannot_repeat: str = ""

    def leads(self, seen: Mapping[ParticipantId, Seen]) -> dict[ParticipantId, int]:
        """Return by how many rounds each site is ahead of the journal, where that is more than a crash costs."""
        ahead = {
            who: said.rounds_done - self.rounds_done for who, said in seen.items() if said.run_id == self.run_id
        }
        return {who: lead for who, lead in ahead.items() if lead > self.tolerated}

    def vouched_lead(self, seen: Mapping[ParticipantId, Seen]) -> int:
        """Return by how many rounds the sites are ahead, as far as it is believed; 0 where they are not."""
        return _vouched(self.leads(seen).values(), self.vouchers)

    def words(self, rounds: int) -> tuple[str, str]:
        """Return what it means that the sites are ahead by so many rounds, and what to do about it."""
        what = (
            f"the sites are ahead by {rounds} rounds: the journal ends after round {self.rounds_done}, and sites "
            f"have taken part until round {self.rounds_done + rounds}; an older copy of save/ was restored"
        )
        newest = "put the newest copy of save/ back and start it again"
        if self.cannot_repeat:
            return (
                f"{what}; {self.cannot_repeat}",
                f"{newest}; the sites wait. Without one, --fresh begins a new run",
            )
        remedy = (
            f"{newest}; or have those rounds repeated with `fedfair aggregator start --after-restore continue`"
        )
        return what, remedy

    def stops(self, rounds: int) -> bool:
        """Return whether nothing may be summed, where the sites are ahead by so many rounds."""
        return bool(rounds) and (bool(self.cannot_repeat) or not self.repeats_rounds)

    def vouched_number(self, seen: Mapping[ParticipantId, Seen]) -> SumNumber:
        """Return the number that new sums must exceed, as far as it is believed."""
        return SumNumber(_vouched((said.sum_number for said in seen.values()), self.vouchers))


def _vouched(numbers: Iterable[int], vouchers: int) -> int:
    """Return the largest number that so many say, or more; 0 where fewer say anything."""
    largest = sorted(numbers, reverse=True)
    return largest[vouchers - 1] if len(largest) >= vouchers else 0
