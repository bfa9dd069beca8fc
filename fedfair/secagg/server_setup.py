"""The aggregator's side of a session's set-up: what it proposes, what arrived, and what goes to whom.

Every key advertisement and every confirm is checked before it is forwarded, so a member that sends nonsense is
known at once and does not make the others refuse. Decides no order of events; those are `set_up_phases`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from fedfair.errors import LocalProtocolError
from fedfair.secagg.checks import Check, SecaggError, require
from fedfair.secagg.keys import check_public_key
from fedfair.secagg.member_tree import MemberTree, leaf
from fedfair.secagg.params import SessionPlan
from fedfair.secagg.session import check_key_is_new, ciphertext_bytes
from fedfair.secagg.session_graph import SessionGraph, drawers, drawn_session, nonce_commitment
from fedfair.secagg.setup_messages import (
    NONCE_BYTES,
    Confirm,
    Confirms,
    KeyAdvertisement,
    KeyAdvertisements,
    MemberList,
    Proposal,
    Reveal,
)
from fedfair.secagg.shamir import Randomness
from fedfair.secagg.shape import SumShape, layout_digest
from fedfair.secagg.signing import Roster
from fedfair.secagg.transcript import session_identity

REMEMBERED_PROPOSALS = 8
"""How many set-ups a site may be behind before its key advertisement looks forged."""


class SetUp:
    """The set-up of one session after the other, as the aggregator sees it.

    Args:
        roster: the pinned keys of all members.
        plan: what every session is for, and its terms.
        shapes: the shape of the sum of every purpose.
        randomness: source of nonces.
        quorum: fewest members of a session, where the consortium wants more than the protocol.

    Attributes:
        least: fewest members of a session.
        proposal: the last one; empty before the first.
        session_id: of what was advertised, and once a sparse graph is drawn, of the session with it.
        graph: who shares masks with whom, once that is known.
    """

    def __init__(
        self,
        roster: Roster,
        plan: SessionPlan,
        shapes: Mapping[str, SumShape],
        randomness: Randomness,
        quorum: int = 0,
    ) -> None:
        self.least = max(plan.terms.colluders + 2, quorum)
        self._roster = roster
        self._plan = plan
        self._layout = layout_digest(shapes)
        self._randomness = randomness
        self.proposal = b""
        self._earlier: deque[bytes] = deque(maxlen=REMEMBERED_PROPOSALS)
        self._adverts: dict[int, tuple[bytes, KeyAdvertisement]] = {}
        self._confirms: dict[int, Confirm] = {}
        self._owners: dict[bytes, int] = {}
        self._reveals: dict[int, Reveal] = {}
        self._drawing: tuple[int, ...] = ()
        self._tree: MemberTree | None = None
        self.session_id = b""
        self.graph: SessionGraph | None = None

    def propose(self) -> bytes:
        """Return a new proposal; what came to answer the one before is forgotten."""
        self._earlier.append(self.proposal)
        nonce = self._randomness(NONCE_BYTES)
        self.proposal = Proposal(
            self._plan.terms, self._plan.digest, self._roster.digest, self._layout, nonce
        ).encode()
        self._adverts, self._confirms, self._owners, self._reveals = {}, {}, {}, {}
        self._tree = self.graph = None
        return self.proposal

    def take_advert(self, sender: int, raw: bytes) -> None:
        """Check and keep a key advertisement.

        Raises:
            SecaggError: ENCODING, MEMBERSHIP, SIGNATURE, LATE or KEY; nothing changed.
        """
        advert, name = KeyAdvertisement.decode(raw), self._roster.name(sender)
        require(advert.member == sender, Check.MEMBERSHIP, f"member {sender} advertises as {advert.member}")
        self._check_author(sender, advert)
        check_public_key(advert.public_key, self._plan.terms.suite, name)
        check_key_is_new(advert, self._owners, self._roster)
        self._adverts[sender] = raw, advert
        self._owners[advert.agreement_key] = sender

    def name_session(self) -> dict[int, bytes]:
        """End the advertising; return what those receive who draw the graph, none for a complete one."""
        adverts, terms = self._adverts, self._plan.terms
        self._tree = tree = MemberTree({one: leaf(one, known.advertised) for one, (_, known) in adverts.items()})
        self.session_id = session_identity(self.proposal, tree.members, tree.root)
        if terms.graph(len(adverts)) is None:
            self.graph = SessionGraph(tree.members, None, self.session_id)
            self._drawing = ()
        else:
            self._drawing = drawers(tree.members, self.session_id, terms.colluders)
        return {one: MemberList(tree.members, tree.proof((one,))).encode() for one in self._drawing}

    def take_reveal(self, sender: int, raw: bytes) -> None:
        """Check and keep what a member reveals.

        Raises:
            SecaggError: ENCODING, MEMBERSHIP, SESSION, SIGNATURE or GRAPH; nothing changed.
        """
        reveal, name = Reveal.decode(raw), self._roster.name(sender)
        require(reveal.member == sender, Check.MEMBERSHIP, f"member {sender} reveals a nonce as {reveal.member}")
        require(reveal.session_id == self.session_id, Check.SESSION, f"member {sender} is in another session")
        promised = self._adverts[sender][1].nonce
        kept = nonce_commitment(reveal.nonce, self.proposal, sender) == promised
        require(kept, Check.GRAPH, f"{name} reveals another nonce than it promised")
        self._roster.verify(sender, reveal.signature, "reveal", *reveal.signed_fields())
        self._reveals[sender] = reveal

    @property
    def advertised(self) -> int:
        """Return how many have advertised keys."""
        return len(self._adverts)

    @property
    def confirmed(self) -> int:
        """Return how many have confirmed the session."""
        return len(self._confirms)

    @property
    def without_silent(self) -> tuple[int, ...]:
        """Return who has advertised keys, without those who did not reveal a nonce that is due, increasing."""
        return tuple(sorted(self._adverts.keys() - (set(self._drawing) - self._reveals.keys())))

    @property
    def is_drawn(self) -> bool:
        """Return whether every member that draws the graph has revealed its nonce."""
        return self._reveals.keys() == set(self._drawing)

    def adverts(self) -> dict[int, bytes]:
        """Return for each member that advertised keys the message with those it needs; draw a sparse graph.

        Raises:
            LocalProtocolError: the session has no name yet, or somebody has not revealed its nonce.
        """
        if self._tree is None or not self.is_drawn:
            raise LocalProtocolError("a graph is drawn before every member has revealed its nonce")
        members, nonces = (
            self._tree.members,
            tuple((one, self._reveals[one].signed_nonce) for one in self._drawing),
        )
        if self.graph is None:
            drawn = drawn_session(self.session_id, {one: told.nonce for one, told in self._reveals.items()})
            self.session_id = drawn
            self.graph = SessionGraph(members, self._plan.terms.graph(len(members)), drawn)
        known: dict[tuple[int, ...], bytes] = {}  # in a complete graph one message for all

        def message_for(needed: tuple[int, ...]) -> bytes:
            if needed not in known and self._tree is not None:
                adverts = tuple((one, self._adverts[one][0]) for one in needed)
                known[needed] = KeyAdvertisements(members, adverts, self._tree.proof(needed), nonces).encode()
            return known[needed]

        return {member: message_for(self.graph.known_to(member, self._drawing)) for member in members}

    def take_confirm(self, sender: int, raw: bytes) -> None:
        """Check and keep a confirm.

        Raises:
            SecaggError: ENCODING, MEMBERSHIP, SESSION, SIGNATURE or CONFIRM; nothing changed.
        """
        confirm, name = Confirm.decode(raw), self._roster.name(sender)
        require(confirm.member == sender, Check.MEMBERSHIP, f"member {sender} confirms as {confirm.member}")
        require(confirm.session_id == self.session_id, Check.SESSION, f"member {sender} is in another session")
        self._roster.verify(sender, confirm.signature, "confirm", *confirm.signed_fields())
        suite, graph = self._plan.terms.suite, self.drawn
        due = {member: ciphertext_bytes(suite, sender, member, graph) for member in graph.receivers(sender)}
        confirm.check_sealed(due, name)
        self._confirms[sender] = confirm

    def confirms(self) -> dict[int, bytes]:
        """Return for each member that confirmed the message with the confirms, each as that member needs it."""
        known = {member: confirm.forwarding() for member, confirm in sorted(self._confirms.items())}
        return {receiver: self._confirms_for(receiver, known) for receiver in known}

    def _confirms_for(self, receiver: int, known: Mapping[int, Callable[[int], bytes]]) -> bytes:
        senders = [member for member in self.drawn.senders(receiver) if member in known]
        return Confirms(self.session_id, tuple((member, known[member](receiver)) for member in senders)).encode()

    @property
    def drawn(self) -> SessionGraph:
        """Return who shares masks with whom.

        Raises:
            LocalProtocolError: it is not known yet.
        """
        if self.graph is None:
            raise LocalProtocolError("who shares masks with whom is not known yet")
        return self.graph

    def _check_author(self, sender: int, advert: KeyAdvertisement) -> None:
        """Check whose key advertisement it is, and that it answers this proposal, not an older one."""
        try:
            self._roster.verify(sender, advert.signature, "advert", *advert.signed_fields(self.proposal))
        except SecaggError as fault:
            if any(self._answers(sender, advert, proposal) for proposal in self._earlier):
                late = f"member {sender} answers a proposal that is over"
                raise SecaggError(Check.LATE, late) from fault
            raise

    def _answers(self, sender: int, advert: KeyAdvertisement, proposal: bytes) -> bool:
        try:
            self._roster.verify(sender, advert.signature, "advert", *advert.signed_fields(proposal))
        except SecaggError:
            return False
        return True
