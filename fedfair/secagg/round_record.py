"""Records what the aggregator needs to ask for the very same round again: nothing secret, a few hundred bytes.

Sites answer a request that they have answered before with the bytes that they sent then. The start of the round is
here as it was sent. Who had uploaded decides the request for votes; the votes, with the uploads that come again,
decide the requests to open. So a round that was interrupted can be opened later, for the same survivors, with the
same bytes in both directions. Decides no order of events; that is `server`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from fedfair.errors import LocalProtocolError
from fedfair.secagg.checks import SecaggError
from fedfair.secagg.codec import MessageReader, MessageWriter
from fedfair.secagg.messages import MAX_MESSAGE_BYTES, Pairs
from fedfair.secagg.round_messages import RoundStart
from fedfair.secagg.session_graph import SessionGraph
from fedfair.secagg.signing import SIGNATURE_BYTES


@dataclass(frozen=True)
class RoundRecord:
    """One round as far as the aggregator has asked.

    Attributes:
        members: those of the session.
        graph: of the session.
        start: the round start that was sent.
        survivors: who had uploaded when the uploads were closed; empty before.
        votes: the votes that were collected for them; empty before, and where none are due.
        uploaded: for whom masks with the others were asked; empty before, and where no member was missing.
    """

    members: tuple[int, ...]
    graph: SessionGraph
    start: RoundStart
    survivors: tuple[int, ...] = ()
    votes: Pairs = ()
    uploaded: tuple[int, ...] = ()

    def encode(self) -> bytes:
        """Return the bytes to keep."""
        return self._encoded

    @cached_property
    def _encoded(self) -> bytes:
        writer = MessageWriter().members(self.members).sized(self.start.encode())
        writer.members(self.survivors).by_member(self.votes).members(self.uploaded)
        self.graph.write(writer)
        return writer.done()

    @classmethod
    def decode(cls, raw: bytes) -> RoundRecord:
        """Return the record.

        Raises:
            LocalProtocolError: the bytes are damaged.
        """
        try:
            reader = MessageReader(raw, "record of a round")
            members, start = reader.members(), RoundStart.decode(reader.sized(MAX_MESSAGE_BYTES))
            survivors, votes = reader.members(), reader.by_member(SIGNATURE_BYTES)
            uploaded = reader.members()
            graph = SessionGraph.read(reader, start.session_id)
            record = cls(members, graph, start, survivors, votes, uploaded)
            reader.end()
        except SecaggError as error:
            raise LocalProtocolError(f"the record of an interrupted round is damaged: {error.message}") from error
        return record

    @property
    def asked(self) -> tuple[int, ...]:
        """Return who must upload again: the survivors where they are known, otherwise who may still be one."""
        return self.survivors or self.uploaded or self.start.cohort
