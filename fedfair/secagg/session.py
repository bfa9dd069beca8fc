"""A site's way into a session: proposal, key advertisements, confirms; then chains of keys that only move forward.

Phases are objects: `Joining` -> `Advertised` [-> `Drawing`] -> `Agreed` -> `Session`. Each method checks
everything first, then returns the next phase with the bytes to send; a refused message changes nothing, and the
later phase of a message simply has no method for an earlier one. Leaves rounds to `client`. Stops swapped keys
(pinned signatures), replayed key advertisements (nonces and confirms), invented members (roster) and weak terms
(policy). A site sees the keys that it needs, which it computes itself, and the one digest of all members'
(`member_tree`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedfair.errors import LocalProtocolError
from fedfair.secagg.check_seed import (
    SEALED_SEED_BYTES,
    SEED_BYTES,
    check_seed,
    open_seed,
    seal_seed,
    seed_commitment,
    session_key,
)
from fedfair.secagg.checks import Check, require
from fedfair.secagg.fixedpoint import check_header
from fedfair.secagg.graph_terms import ALL, AUTO, COMPLETE_MEMBERS
from fedfair.secagg.history import History
from fedfair.secagg.keys import (
    KEM_CIPHERTEXT_BYTES,
    Chain,
    EphemeralKey,
    Secret,
    check_public_key,
    encapsulate,
    pair_chain,
)
from fedfair.secagg.member_tree import leaf, root_of
from fedfair.secagg.params import SecaggPolicy, SessionPlan, SessionTerms, Suite
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
    sealed_digest,
)
from fedfair.secagg.shamir import Randomness
from fedfair.secagg.shape import SumShape, check_shapes, layout_digest
from fedfair.secagg.signing import Roster, sign
from fedfair.secagg.transcript import DIGEST_BYTES, NO_STATE, session_identity
from fedfair.secagg.vouching import vouched_state

ROUNDS_PER_SESSION = 100
MAX_JUMP = 1000


@dataclass(frozen=True, slots=True)
class SessionSite:
    """The knowledge of a site before anybody speaks.

    Attributes:
        member: its roster index.
        roster: the pinned keys of all members.
        signing_key: its own private key.
        plan: which plan it approved, and the terms that follow.
        policy: what it insists on beyond them.
        shapes: the shape of the sum of every purpose; another purpose is refused.
        threads: how many threads may build a vector.
        body_dtype: float32 or float64: width of an opened body.

    Raises:
        LocalProtocolError: the shapes carry check tags where the plan has none, or the other way round.
    """

    member: int
    roster: Roster
    signing_key: Ed25519PrivateKey = field(repr=False)
    plan: SessionPlan
    policy: SecaggPolicy
    shapes: Mapping[str, SumShape]
    threads: int = 1
    body_dtype: np.dtype[np.floating] = field(default_factory=lambda: np.dtype(np.float64))

    def __post_init__(self) -> None:
        check_shapes(self.shapes, checked=self.plan.terms.check_sums)


@dataclass(frozen=True, slots=True)
class Joining:
    """Nothing is agreed."""

    site: SessionSite

    def advertise(self, raw: bytes, state_digest: bytes, randomness: Randomness) -> tuple[Advertised, bytes]:
        """Check a proposal against plan, terms, roster and layout; return the next phase and our advertisement.

        Args:
            raw: the proposal.
            state_digest: 32 bytes, of the state of the run that this site holds; NO_STATE for none.
            randomness: source of the key, the nonce and the check seed.

        Raises:
            SecaggError: ENCODING, PLAN, POLICY, THRESHOLD or LAYOUT.
            LocalProtocolError: the state is not named by 32 bytes.
        """
        if len(state_digest) != DIGEST_BYTES:
            raise LocalProtocolError(f"a state named by {len(state_digest)} bytes, expected {DIGEST_BYTES}")
        proposal, site = Proposal.decode(raw), self.site
        site.plan.check(proposal.plan_digest, proposal.terms)
        for what, proposed, own in (
            ("roster", proposal.roster_digest, site.roster.digest),
            ("layout", proposal.layout_digest, layout_digest(site.shapes)),
        ):
            require(
                proposed == own,
                Check.LAYOUT,
                f"the aggregator proposes {what} {proposed.hex()[:16]}, this site approved {own.hex()[:16]}",
                "compare the plan digests on both sides",
            )
        for shape in site.shapes.values():
            check_header(shape, len(site.roster), proposal.terms.greatest_weight)
        key = EphemeralKey(proposal.terms.suite, randomness)
        nonce, seed = randomness(NONCE_BYTES), Secret(randomness(SEED_BYTES))
        promised = seed_commitment(seed, raw, site.member)
        draws = may_draw(proposal.terms, len(site.roster))
        told = nonce_commitment(nonce, raw, site.member) if draws else nonce
        unsigned = KeyAdvertisement(site.member, key.public, told, promised, state_digest, b"")
        signature = sign(site.signing_key, "advert", *unsigned.signed_fields(raw))
        advert = replace(unsigned, signature=signature).encode()
        return Advertised(site, proposal.terms, raw, key, seed, advert, nonce), advert


def may_draw(terms: SessionTerms, members: int) -> bool:
    """Return whether sessions of this roster may have a sparse graph, so that nonces are promised before."""
    least = COMPLETE_MEMBERS if terms.neighbours == AUTO else terms.neighbours + 1
    return terms.neighbours != ALL and members > least


@dataclass(frozen=True, slots=True)
class Advertised:
    """Our key is out; nobody else's is known."""

    site: SessionSite
    terms: SessionTerms
    proposal: bytes
    key: EphemeralKey = field(repr=False)
    seed: Secret
    advert: bytes
    nonce: bytes = field(default=b"", repr=False)

    def reveal(self, raw: bytes) -> tuple[Drawing, bytes]:
        """Check that our own advertisement is among them; return the next phase and our nonce, signed.

        Raises:
            SecaggError: ENCODING, MEMBERSHIP, OWN_ADVERT, POLICY or GRAPH.
        """
        message, site = MemberList.decode(raw), self.site
        own = KeyAdvertisement.decode(self.advert)
        session_id = self._named(message.members, {site.member: own}, message.proof)
        drawing = self.terms.graph(len(message.members)) is not None
        drawing = drawing and site.member in drawers(message.members, session_id, self.terms.colluders)
        require(drawing, Check.GRAPH, "a request for the nonce of a site that is not drawn to reveal it")
        unsigned = Reveal(site.member, session_id, self.nonce, b"")
        signature = sign(site.signing_key, "reveal", *unsigned.signed_fields())
        return Drawing(self, session_id), replace(unsigned, signature=signature).encode()

    def agree(self, raw: bytes) -> tuple[Agreed, bytes]:
        """Check the key advertisements that we need, and the graph; return the next phase and our confirm.

        Raises:
            SecaggError: ENCODING, MEMBERSHIP, SIGNATURE, OWN_ADVERT, KEY, POLICY, SESSION or GRAPH.
        """
        return self.agreed(raw, revealed=b"")

    def agreed(self, raw: bytes, revealed: bytes) -> tuple[Agreed, bytes]:
        """Return the next phase and our confirm.

        Args:
            raw: the message with the key advertisements.
            revealed: the session for which we have revealed our nonce; empty for none.

        Raises:
            SecaggError: as `agree`.
        """
        message, site = KeyAdvertisements.decode(raw), self.site
        adverts = self._checked(message)
        session_id = self._named(message.members, adverts, message.proof)
        graph, session_id = self._graph(message, adverts, session_id, revealed)
        vouched = vouched_state(
            {one: adverts[one].state_digest for one in graph.committee}, self.terms, graph.terms
        )
        other = vouched if vouched not in (NO_STATE, adverts[site.member].state_digest) else NO_STATE
        near, receivers = set(graph.neighbours(site.member)), graph.receivers(site.member)
        known = sorted({*receivers, *graph.senders(site.member)})
        peers = {member: self._peer(adverts[member], chained=member in near) for member in known}
        ciphertexts = tuple((member, self._sealed(session_id, member, peers[member])) for member in receivers)
        unsigned = Confirm(site.member, session_id, sealed_digest(ciphertexts), ciphertexts, b"")
        signature = sign(site.signing_key, "confirm", *unsigned.signed_fields())
        confirm = replace(unsigned, signature=signature).encode()
        agreed = Agreed(site, self.terms, self.proposal, session_id, self.key, self.seed, peers, other, graph)
        return agreed, confirm

    def _named(
        self, members: tuple[int, ...], adverts: Mapping[int, KeyAdvertisement], proof: tuple[bytes, ...]
    ) -> bytes:
        """Return the name of the session in which these members have advertised keys, some of them these."""
        site = self.site
        words = "our own key advertisement was changed or omitted on its way"
        require(site.member in members, Check.OWN_ADVERT, words)
        for member in members:
            site.roster.check_pinned(member)
        strangers = sorted(adverts.keys() - set(members))
        require(not strangers, Check.MEMBERSHIP, f"key advertisements of {strangers}, who are no members")
        site.policy.check_cohort(len(members), self.terms.colluders)
        leaves = {member: leaf(member, advert.advertised) for member, advert in adverts.items()}
        return session_identity(self.proposal, members, root_of(members, leaves, proof))

    def _graph(
        self,
        message: KeyAdvertisements,
        adverts: Mapping[int, KeyAdvertisement],
        session_id: bytes,
        revealed: bytes,
    ) -> tuple[SessionGraph, bytes]:
        """Return the graph of a session, drawn by nonces that are as promised, and the session's name with it."""
        site, members = self.site, message.members
        terms = self.terms.graph(len(members))
        drawing = () if terms is None else drawers(members, session_id, self.terms.colluders)
        due = session_id if site.member in drawing else b""
        words = "a graph of another session than the one for which this site has revealed its nonce, or without it"
        require(revealed == due, Check.SESSION, words)
        found = tuple(member for member, _ in message.nonces)
        words = f"a graph drawn by the members {list(found)}, due are {list(drawing)}"
        require(found == drawing and adverts.keys() >= set(drawing), Check.GRAPH, words)
        told = [Reveal.forwarded(member, session_id, nonce) for member, nonce in message.nonces]
        for one in told:
            kept = nonce_commitment(one.nonce, self.proposal, one.member) == adverts[one.member].nonce
            name = site.roster.name(one.member)
            require(kept, Check.GRAPH, f"{name} reveals another nonce than it promised")
            site.roster.verify(one.member, one.signature, "reveal", *one.signed_fields())
        drawn = drawn_session(session_id, {one.member: one.nonce for one in told}) if told else session_id
        graph = SessionGraph(members, terms, drawn)
        needed = graph.known_to(site.member, drawing)
        words = f"key advertisements of the members {sorted(adverts)}, this site needs those of {list(needed)}"
        require(tuple(adverts) == needed, Check.GRAPH, words)
        return graph, drawn

    def _sealed(self, session_id: bytes, member: int, peer: UnconfirmedMember) -> bytes:
        pair = (self.site.member, member)
        return peer.ciphertext + seal_seed(self.seed, peer.shared, session_id, pair, peer.ciphertext)

    def erase(self) -> None:
        """Forget every secret of the set-up."""
        self.key.erase()
        self.seed.erase()

    def _checked(self, message: KeyAdvertisements) -> dict[int, KeyAdvertisement]:
        site = self.site
        own = dict(message.adverts).get(site.member)
        require(
            own == self.advert, Check.OWN_ADVERT, "our own key advertisement was changed or omitted on its way"
        )
        adverts: dict[int, KeyAdvertisement] = {}
        owners: dict[bytes, int] = {}
        for index, raw in message.adverts:
            advert = KeyAdvertisement.decode(raw)
            require(
                advert.member == index,
                Check.MEMBERSHIP,
                f"a key advertisement of member {advert.member} as {index}",
            )
            site.roster.verify(index, advert.signature, "advert", *advert.signed_fields(self.proposal))
            check_public_key(advert.public_key, self.terms.suite, site.roster.name(index))
            check_key_is_new(advert, owners, site.roster)
            adverts[index] = advert
            owners[advert.agreement_key] = index
        return adverts

    def _peer(self, advert: KeyAdvertisement, *, chained: bool) -> UnconfirmedMember:
        shared = self.key.agree(advert.public_key)
        if chained and self.terms.suite is Suite.X25519_MLKEM768 and self.site.member < advert.member:
            return UnconfirmedMember(advert, shared, *encapsulate(advert.public_key))
        return UnconfirmedMember(advert, shared, None, b"")


@dataclass(frozen=True, slots=True)
class Drawing:
    """Our nonce is revealed, for one session; the order of its members is not known yet."""

    advertised: Advertised
    session_id: bytes

    def agree(self, raw: bytes) -> tuple[Agreed, bytes]:
        """Check the key advertisements that we need, and the graph; return the next phase and our confirm.

        Raises:
            SecaggError: as `Advertised.agree`.
        """
        return self.advertised.agreed(raw, revealed=self.session_id)

    def erase(self) -> None:
        """Forget every secret of the set-up."""
        self.advertised.erase()


def check_key_is_new(advert: KeyAdvertisement, owners: Mapping[bytes, int], roster: Roster) -> None:
    """Refuse a public key that another member of the same set-up advertises.

    Args:
        advert: whose key is checked.
        owners: roster index of each earlier member, by the X25519 key that it advertises.
        roster: for their names.

    Raises:
        SecaggError: KEY.
    """
    owner = owners.get(advert.agreement_key, advert.member)
    require(
        owner == advert.member,
        Check.KEY,
        f"{roster.name(advert.member)} and {roster.name(owner)} advertise the same public key",
        "no two honest sites have the same: one has the private key of the other",
    )


def ciphertext_bytes(suite: Suite, sender: int, receiver: int, graph: SessionGraph) -> int:
    """Return the length of what a confirm carries for one other member: the check seed, and the ML-KEM secret."""
    chained = receiver in graph.neighbours(sender)
    kem = KEM_CIPHERTEXT_BYTES if chained and suite is Suite.X25519_MLKEM768 and sender < receiver else 0
    return kem + SEALED_SEED_BYTES


@dataclass(frozen=True, slots=True)
class UnconfirmedMember:
    """The facts about one other member before it confirms; `ciphertext` carries our ML-KEM secret to it."""

    advert: KeyAdvertisement
    shared: Secret
    kem: Secret | None
    ciphertext: bytes


@dataclass(frozen=True, slots=True)
class Agreed:
    """Keys are known, but not that their owners mean this session.

    `other_state` is the digest of the state of the run that enough members signed and this site does not hold;
    NO_STATE where there is none.
    """

    site: SessionSite
    terms: SessionTerms
    proposal: bytes
    session_id: bytes
    key: EphemeralKey = field(repr=False)
    seed: Secret
    peers: Mapping[int, UnconfirmedMember] = field(repr=False)
    other_state: bytes
    graph: SessionGraph

    def enter(self, raw: bytes, history: History) -> Session:
        """Check the confirms of the others; return the session with all who confirmed.

        Args:
            raw: the message.
            history: what this site remembers beyond sessions.

        Raises:
            SecaggError: ENCODING, SESSION, MEMBERSHIP, CONFIRM or POLICY.
        """
        message, site = Confirms.decode(raw), self.site
        require(message.session_id == self.session_id, Check.SESSION, "confirms of another session")
        confirmed = {index: self._checked(index, raw) for index, raw in message.confirms}
        if self.graph.terms is None:  # In a sparse graph each round's cohort is checked, here only some are seen.
            site.policy.check_cohort(len(confirmed) + 1, self.terms.colluders)
        seeds = {index: self._seed(index, confirm) for index, confirm in confirmed.items()}
        check_key = session_key(self._dealt({**seeds, site.member: self.seed}), self.session_id)
        near = self.graph.neighbours(site.member)
        chains = {index: self._chain(index, one) for index, one in confirmed.items() if index in near}
        for seed in seeds.values():
            seed.erase()
        self.erase()
        return Session(site, self.terms, self.session_id, chains, check_key, history, self.graph)

    def _dealt(self, seeds: Mapping[int, Secret]) -> Mapping[int, Secret]:
        """Return the seeds that G is made of: those of the dealers, in a complete graph those of all."""
        dealt = {member: seeds[member] for member in self.graph.dealers if member in seeds}
        dealers = ", ".join(map(self.site.roster.name, self.graph.dealers))
        require(bool(dealt), Check.CONFIRM, f"none of {dealers}, who deal the check seeds, has confirmed")
        return dealt

    def erase(self) -> None:
        """Forget every secret of the set-up."""
        self.key.erase()
        self.seed.erase()
        for peer in self.peers.values():
            peer.shared.erase()
            if peer.kem is not None:
                peer.kem.erase()

    def _checked(self, index: int, raw: bytes) -> Confirm:
        confirm = Confirm.decode(raw)
        require(index in self.peers and confirm.member == index, Check.MEMBERSHIP, f"a confirm as member {index}")
        require(
            confirm.session_id == self.session_id,
            Check.CONFIRM,
            f"{self.site.roster.name(index)} confirmed another session than this one",
            "its key advertisement was replayed, or it was shown other ones than this site",
        )
        self.site.roster.verify(index, confirm.signature, "confirm", *confirm.signed_fields())
        ciphertext = confirm.ciphertext_for(self.site.member)
        due = ciphertext_bytes(self.terms.suite, index, self.site.member, self.graph)
        require(
            len(ciphertext) == due, Check.CONFIRM, f"{self.site.roster.name(index)} sealed no key for this site"
        )
        return confirm

    def _seed(self, index: int, confirm: Confirm) -> Secret:
        site, peer = self.site, self.peers[index]
        ciphertext = confirm.ciphertext_for(site.member)
        beside, sealed = ciphertext[:-SEALED_SEED_BYTES], ciphertext[-SEALED_SEED_BYTES:]
        seed = open_seed(sealed, peer.shared, self.session_id, (index, site.member), beside)
        check_seed(seed, self.proposal, index, peer.advert.seed_commitment)
        return seed

    def _chain(self, index: int, confirm: Confirm) -> Chain:
        site, peer = self.site, self.peers[index]
        kem, ciphertext = peer.kem, peer.ciphertext
        if self.terms.suite is Suite.X25519_MLKEM768 and index < site.member:
            ciphertext = confirm.ciphertext_for(site.member)[:-SEALED_SEED_BYTES]
            kem = self.key.open(ciphertext)
        ours, theirs = (site.member, self.key.public), (index, peer.advert.public_key)
        pair = (ours, theirs) if site.member < index else (theirs, ours)
        return pair_chain(peer.shared, kem, ciphertext, self.session_id, pair)


@dataclass(slots=True)
class Session:
    """Keys with all that confirmed of those with whom this site shares masks.

    Attributes:
        site: our own side.
        terms: what was agreed.
        session_id: 32 bytes.
        chains: one for each confirmed peer.
        check_key: G, which all that confirmed have and the aggregator has not.
        history: what the site remembers beyond this session.
        graph: who shares masks with whom.
        last_round: the number of the last round entered; 0 before the first.
        rounds: how many rounds were entered.
    """

    site: SessionSite
    terms: SessionTerms
    session_id: bytes
    chains: dict[int, Chain] = field(repr=False)
    check_key: Secret
    history: History
    graph: SessionGraph
    last_round: int = 0
    rounds: int = 0

    @property
    def members(self) -> tuple[int, ...]:
        """Return all members with whom we share keys, ourselves included."""
        return tuple(sorted((self.site.member, *self.chains)))

    def erase(self) -> None:
        """Forget every chain and the check key; no round can be entered any more."""
        self.check_key.erase()
        for chain in self.chains.values():
            chain.erase()
        self.chains.clear()


def renewal_reason(
    *, rounds: int, hours: float, members: frozenset[int], present: frozenset[int], restarted: bool
) -> str:
    """Return why a new session is due before the next round, or an empty string.

    Args:
        rounds: rounds since the session began.
        hours: hours since then.
        members: who is in the session.
        present: who is connected now.
        restarted: whether somebody has lost its chains.
    """
    if restarted:
        return "a member restarted; its chains are never continued from a disk"
    if not present <= members:
        return "a member came that has no keys in this session"
    if rounds >= ROUNDS_PER_SESSION:
        return f"{rounds} rounds under one set of keys, at most {ROUNDS_PER_SESSION}"
    if hours >= 24.0:
        return f"{hours:.1f} hours under one set of keys, at most 24"
    return ""
