"""The aggregator's side of a session's set-up: what it proposes, what arrived, and what goes to whom.

Every key advertisement and every confirm is checked before it is forwarded, so a member that sends nonsense is
known at once and does not make the others refuse. Decides no order of events; that is `server`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from fedfair.errors import LocalProtocolError
from fedfair.secagg.checks import Check, SecaggError, require
from fedfair.secagg.keys import check_public_key
from fedfair.secagg.params import SessionPlan
from fedfair.secagg.ring import Ring, drawn_session, ring_commitment
from fedfair.secagg.session import check_key_is_new, ciphertext_bytes
from fedfair.secagg.setup_messages import (
    NONCE_BYTES,
    Confirm,
    Confirms,
    KeyAdvertisement,
    KeyAdvertisements,
    Proposal,
    Reveal,
    Reveals,
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
        roster: everybody's pinned keys.
        plan: what every session is for, and its terms.
        shapes: the shape of the sum of every purpose.
        randomness: source of nonces.

    Attributes:
        proposal: the last one; empty before the first.
        ring: the sparse graph, once it is drawn; None for the complete one.
    """

    def __init__(
        self, roster: Roster, plan: SessionPlan, shapes: Mapping[str, SumShape], randomness: Randomness
    ) -> None:
        self._roster = roster
        self._plan = plan
        self._layout = layout_digest(shapes)
        self._randomness = randomness
        self.proposal = b""
        self._earlier: deque[bytes] = deque(maxlen=REMEMBERED_PROPOSALS)
        self._adverts: dict[int, tuple[bytes, KeyAdvertisement]] = {}
        self._confirms: dict[int, Confirm] = {}
        self._owners: dict[bytes, int] = {}
        self._nonces: dict[int, bytes] = {}
        self.ring: Ring | None = None

    def propose(self) -> bytes:
        """Return a new proposal; what came to answer the one before is forgotten."""
        self._earlier.append(self.proposal)
        nonce = self._randomness(NONCE_BYTES)
        self.proposal = Proposal(
            self._plan.terms, self._plan.digest, self._roster.digest, self._layout, nonce
        ).encode()
        self._adverts, self._confirms, self._owners, self._nonces = {}, {}, {}, {}
        self.ring = None
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

    def take_reveal(self, sender: int, raw: bytes, session_id: bytes) -> None:
        """Check and keep what a member reveals.

        Raises:
            SecaggError: ENCODING, MEMBERSHIP, SESSION or GRAPH; nothing changed.
        """
        reveal, name = Reveal.decode(raw), self._roster.name(sender)
        require(reveal.member == sender, Check.MEMBERSHIP, f"member {sender} reveals a nonce as {reveal.member}")
        require(reveal.session_id == session_id, Check.SESSION, f"member {sender} is in another session")
        promised = self._adverts[sender][1].nonce
        kept = ring_commitment(reveal.nonce, self.proposal, sender) == promised
        require(kept, Check.GRAPH, f"{name} reveals another nonce than it promised")
        self._nonces[sender] = reveal.nonce

    @property
    def draws(self) -> bool:
        """Return whether everybody who has advertised keys draws a sparse graph before it confirms."""
        return self._plan.terms.graph(len(self._adverts)) is not None

    @property
    def lacks_nonces(self) -> bool:
        """Return whether somebody who has advertised keys has not revealed its nonce."""
        return self._adverts.keys() != self._nonces.keys()

    def draw(self, session_id: bytes) -> tuple[bytes, bytes]:
        """Return the name of the session with its graph, and the message with every nonce.

        Args:
            session_id: of what was advertised.

        Raises:
            LocalProtocolError: there is nothing to draw.
        """
        graph = self._plan.terms.graph(len(self._adverts))
        if graph is None or self.lacks_nonces:
            raise LocalProtocolError("a graph is drawn before everybody has revealed its nonce")
        drawn = drawn_session(session_id, self._nonces)
        self.ring = Ring(self._adverts, graph, drawn)
        return drawn, Reveals(session_id, tuple(sorted(self._nonces.items()))).encode()

    def take_confirm(self, sender: int, raw: bytes, session_id: bytes) -> None:
        """Check and keep a confirm.

        Raises:
            SecaggError: ENCODING, MEMBERSHIP, SESSION, SIGNATURE or CONFIRM; nothing changed.
        """
        confirm, name = Confirm.decode(raw), self._roster.name(sender)
        require(confirm.member == sender, Check.MEMBERSHIP, f"member {sender} confirms as {confirm.member}")
        require(confirm.session_id == session_id, Check.SESSION, f"member {sender} is in another session")
        self._roster.verify(sender, confirm.signature, "confirm", *confirm.signed_fields())
        suite = self._plan.terms.suite
        ring = self.ring
        others = sorted(self._adverts.keys() - {sender}) if ring is None else ring.receivers(sender)
        due = {member: ciphertext_bytes(suite, sender, member, ring) for member in others}
        confirm.check_sealed(due, name)
        self._confirms[sender] = confirm

    def adverts(self) -> tuple[bytes, bytes]:
        """Return the name of the session, and the message with every key advertisement."""
        ordered = sorted(self._adverts.items())
        session_id = session_identity(
            self.proposal, ((member, known.advertised) for member, (_, known) in ordered)
        )
        return session_id, KeyAdvertisements(tuple((member, raw) for member, (raw, _) in ordered)).encode()

    def confirms(self, session_id: bytes) -> dict[int, bytes]:
        """Return for everybody who confirmed the message with the confirms, each as that member needs it."""
        forwarding = [(member, confirm.forwarding()) for member, confirm in sorted(self._confirms.items())]
        if self.ring is None:
            return {
                receiver: Confirms(
                    session_id, tuple((member, forwarded(receiver)) for member, forwarded in forwarding)
                ).encode()
                for receiver, _ in forwarding
            }
        known, found = dict(forwarding), {}
        for receiver in known:
            senders = (member for member in self.ring.senders(receiver) if member in known)
            found[receiver] = Confirms(
                session_id, tuple((member, known[member](receiver)) for member in senders)
            ).encode()
        return found

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
