"""The shares that survivors give of each other's masks, and whether they are enough to open a sum.

Each share is compared with the digest that its owner signed, so a wrong one is known when it arrives, and is never
used. Decides nothing about what is opened with them; that is `recovery`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection

from fedfair.secagg.checks import Check, require
from fedfair.secagg.disputes import Pair
from fedfair.secagg.member_table import MemberTable
from fedfair.secagg.round_graph import Contributors
from fedfair.secagg.round_messages import UnmaskShares
from fedfair.secagg.sealing import share_digests
from fedfair.secagg.shamir import SHARE_BYTES, combine, lagrange_at_zero


class CollectedShares:
    """The shares of one round.

    Args:
        transcript: T_r.
        present: whose uploads are in the sum.
        promised: the digest of each holder's share of each owner's mask.

    Attributes:
        answers: the shares that came, by holder in order of the survivors near it.
        wrong: (holder, owner) of every share that is not the one that its owner promised: one of them lies.
        unopened: (holder, owner) where a holder says that what the owner sealed for it does not open.
    """

    def __init__(self, transcript: bytes, present: Contributors, promised: MemberTable) -> None:
        self._transcript = transcript
        self._present = present
        self._promised = promised
        self._right: Counter[int] = Counter()  # how many right shares there are of whose mask
        self._enough: set[int] = set()  # of whose masks there are enough
        self._known_weights: dict[tuple[int, ...], list[int]] = {}
        self.answers: dict[int, bytes] = {}
        self.wrong: set[Pair] = set()
        self.unopened: set[Pair] = set()

    def add(self, answer: UnmaskShares, name: str) -> None:
        """Keep the shares of one holder; note those that their owners did not promise.

        Args:
            answer: of the holder, about this round.
            name: of the holder, for a refusal.

        Raises:
            SecaggError: SHARE; nothing changed.
        """
        about, sender = tuple(member for member, _ in answer.shares), answer.member
        same = answer.survivors == self._present.ordered and about == self._present.near(sender)
        require(same, Check.SHARE, f"{name} answered for another set")
        right_length = all(len(share) == SHARE_BYTES for _, share in answer.shares)
        words = f"an answer of {name} does not have {SHARE_BYTES} bytes a survivor"
        require(right_length, Check.SHARE, words)
        self.answers[sender] = b"".join(share for _, share in answer.shares)
        given = (((owner, sender), share) for owner, share in answer.shares)
        for (owner, _), found in share_digests(self._transcript, given):
            if found == self._promised.get(owner, sender):
                self._right[owner] += 1
                if self._right[owner] >= self._present.graph.shares_needed(owner):
                    self._enough.add(owner)
            else:
                self.wrong.add((sender, owner))

    def add_unopened(self, holder: int, owner: int) -> None:
        """Note that a survivor answers nothing, because what another one sealed for it does not open.

        Raises:
            SecaggError: MEMBERSHIP: `owner` has sealed nothing for `holder` in this sum.
        """
        present = {holder, owner} <= self._present.members
        sealed = holder != owner and present and owner in self._present.graph.holders(holder)
        words = f"member {holder} accuses member {owner}, who has sealed nothing for it in this sum"
        require(sealed, Check.MEMBERSHIP, words)
        self.unopened.add((holder, owner))

    @property
    def fewest(self) -> int:
        """Return how many right shares there are of the mask of which there are fewest."""
        return min((self._right[owner] for owner in self._present.members), default=0)

    @property
    def suffice(self) -> bool:
        """Return whether there are enough right shares of every mask."""
        return len(self._enough) == len(self._present.members)

    def is_hopeless(self, missing: set[int], lost: Collection[int]) -> bool:
        """Return whether there are too few right shares of a mask, even if all that are missing answer.

        Args:
            missing: who may still answer.
            lost: who may just have failed to; since the last question nobody else has.
        """
        near, needed = self._present.near, self._present.graph.shares_needed
        owners = {owner for member in lost for owner in near(member)} - self._enough
        return any(self._right[one] + len(missing.intersection(near(one))) < needed(one) for one in owners)

    def combined(self, owner: int) -> bytes:
        """Return the secret (31 bytes) of which a survivor has promised the shares; there must be enough of them.

        Raises:
            SecaggError: SHARE: they are of no secret.
        """
        near, needed = self._present.near, self._present.graph.shares_needed(owner)
        answered = (holder for holder in near(owner) if holder in self.answers)
        responders = tuple(holder for holder in answered if (holder, owner) not in self.wrong)[:needed]
        if responders not in self._known_weights:  # Nearly always the same for every survivor.
            self._known_weights[responders] = lagrange_at_zero(responders)
        return combine(self._known_weights[responders], [self._share(owner, holder) for holder in responders])

    def _share(self, owner: int, holder: int) -> bytes:
        place = bisect_left(self._present.near(holder), owner)
        return self.answers[holder][SHARE_BYTES * place : SHARE_BYTES * (place + 1)]
