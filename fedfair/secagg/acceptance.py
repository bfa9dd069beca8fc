"""Verifies an opened sum before the site applies it.

The aggregator sends what it says it has opened, in place of what follows from it. A site that has entered the
round checks that the sum is of this very round, over survivors that may be opened, plausible, and the true one
(`sum_check`). Decides when a sum is due no more than `participant` does; keeps what checking takes, and nothing
else of the round.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedfair.secagg.checks import Check, SecaggError, require
from fedfair.secagg.client import ConsistencyChecked, Contributing, RoundContext, RoundPhase, SharesRevealed
from fedfair.secagg.effects import SumAccepted
from fedfair.secagg.fixedpoint import unpack_signed
from fedfair.secagg.masking import untagged
from fedfair.secagg.opened_sum import OpenedSum, RoundLayout, decode_sum
from fedfair.secagg.round_messages import OpenedMessage, RoundStart
from fedfair.secagg.shape import SumShape
from fedfair.secagg.sum_check import SumCheck, tag_of_limbs

_WHO_LIED = (
    "the aggregator lied, or a site added what does not fit; from the sum nobody can tell which. Nothing was "
    "revealed; this site stops here"
)


@dataclass(frozen=True, slots=True)
class AwaitedSum:
    """A sum that this site has entered the round of, and that it will receive.

    Attributes:
        context: the public facts of the round.
        start: the round start.
        check: of the round; None where sums are not checked.
    """

    context: RoundContext
    start: RoundStart
    check: SumCheck | None = field(repr=False)

    @property
    def shape(self) -> SumShape:
        """Return the shape of the sum."""
        return self.context.site.shapes[self.start.purpose]

    def accept(self, raw: bytes, vector: bytes | bytearray | memoryview, decided: tuple[int, ...]) -> OpenedSum:
        """Return what an opened sum says, if it is the true one.

        Args:
            raw: the message.
            vector: the words of the body, packed at ring width. The memory of a memoryview that can be written
                to becomes that of the sum.
            decided: the survivors that this site has voted for, or answered; () where it has done neither.

        Raises:
            SecaggError: ENCODING, TRANSCRIPT, SURVIVORS, VECTOR or SUM.
        """
        message, context = OpenedMessage.decode(raw), self.context
        context.check_transcript(message.transcript)
        context.check_opened(message.survivors)
        require(
            decided in ((), message.survivors),
            Check.SURVIVORS,
            "a sum over other survivors than those for which this site has voted or answered",
            _WHO_LIED,
        )
        header, body = self._words(message, vector)
        self._check_tag(header, body, message.survivors)
        layout = RoundLayout(self.start, context.site.plan.terms, self.shape, context.site.body_dtype)
        try:
            return decode_sum(header, body, message.survivors, layout)
        except SecaggError as fault:
            raise SecaggError(Check.SUM, f"an opened sum cannot be true: {fault.message}", _WHO_LIED) from fault

    def erase(self) -> None:
        """Forget the key; no sum can be accepted any more."""
        if self.check is not None:
            self.check.erase()

    def _words(
        self, message: OpenedMessage, vector: bytes | bytearray | memoryview
    ) -> tuple[NDArray[np.uint64], NDArray[np.uint32]]:
        shape, ring_bits = self.shape, self.context.site.plan.terms.ring_bits
        for what, found, expected in (
            ("header", len(message.header), shape.header_bytes()),
            ("body", len(vector), shape.body_bytes(ring_bits)),
        ):
            require(
                found == expected,
                Check.VECTOR,
                f"the {what} of an opened sum has {found} bytes, expected {expected}",
                "compare the plan digests and the versions of fedfair on both sides",
            )
        header = np.frombuffer(message.header, "<u8").astype(np.uint64)
        packed, given = np.frombuffer(vector, np.uint8), isinstance(vector, memoryview) and not vector.readonly
        return header, unpack_signed(packed, ring_bits, shape.body_length, in_place=given)

    def _check_tag(self, header: NDArray[np.uint64], body: NDArray[np.uint32], survivors: tuple[int, ...]) -> None:
        if self.check is None:
            return
        shape = self.shape
        expected = self.check.tag_of_sum(untagged(header, shape), body, survivors)
        require(
            tag_of_limbs(header[shape.tag_words]) == expected,
            Check.SUM,
            f"the opened {self.start.purpose} sum of round {self.start.round} is not the sum of what its "
            f"{len(survivors)} survivors added",
            _WHO_LIED,
        )


class Acceptance:
    """The opened sum of the last round that this site has entered, which it takes once.

    Args:
        awaited: what is known of it; None before the first round.

    Attributes:
        accepted: digest of the message with which this site received it; empty before.
    """

    def __init__(self, awaited: AwaitedSum | None) -> None:
        self._awaited = awaited
        self.accepted = b""

    def renew(self, awaited: AwaitedSum | None) -> None:
        """Forget the sum before, and wait for another one."""
        if self._awaited is not None:
            self._awaited.erase()
        self._awaited, self.accepted = awaited, b""

    @property
    def due(self) -> AwaitedSum:
        """Return what is known of the sum.

        Raises:
            SecaggError: OUT_OF_ORDER: there is none.
        """
        if self._awaited is None:
            raise SecaggError(Check.OUT_OF_ORDER, "an opened sum of a round that this site has not entered")
        return self._awaited

    def accept(
        self, raw: bytes, request: bytes, vector: bytes | bytearray | memoryview, phase: RoundPhase | None
    ) -> SumAccepted:
        """Take the opened sum; one that was taken before is the same again.

        Whether it moves anything is for its receiver to say: an aggregator may have lost what followed from it.

        Args:
            raw: the message.
            request: its digest.
            vector: the words of the body, packed at ring width.
            phase: where this site stands in the round; None where it has left it.

        Raises:
            SecaggError: OUT_OF_ORDER, or as `AwaitedSum.accept`; nothing changed.
        """
        early = isinstance(phase, Contributing)
        require(not early, Check.OUT_OF_ORDER, "a sum is opened while this site still makes its update")
        decided = phase.survivors if isinstance(phase, ConsistencyChecked | SharesRevealed) else ()
        due = self.due
        opened = due.accept(raw, vector, decided)
        stranger = phase is None and due.context.site.member in opened.survivors
        words = "a sum with this site among its survivors, which added nothing to it"
        require(not stranger, Check.SURVIVORS, words)
        words = "a second, different sum of a round is opened to this site"
        require(self.accepted in (b"", request), Check.SUM, words)
        self.accepted = request
        return SumAccepted(opened, due.start.subject.state_digest)
