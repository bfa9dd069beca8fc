"""How many bytes the messages of secure aggregation take, beyond vectors, before any of them is sent.

The figures are those of the layouts of `setup_messages` and `round_messages`; a test compares them with what
travels. Where each site shares a mask with every other, what one site sends grows as the number of sites, and what
the aggregator carries as its square. In a sparse graph neither does, in rounds or set-ups, but for one bit a site.
"""

from __future__ import annotations

from fedfair.secagg.check_seed import SEALED_SEED_BYTES
from fedfair.secagg.graph_terms import GraphTerms
from fedfair.secagg.keys import KEM_CIPHERTEXT_BYTES, TAG_BYTES, public_key_bytes
from fedfair.secagg.params import Suite
from fedfair.secagg.sealing import ENVELOPE_BYTES, SHARE_DIGEST_BYTES
from fedfair.secagg.session_graph import DEALERS, HONEST_DRAWERS
from fedfair.secagg.setup_messages import NONCE_BYTES
from fedfair.secagg.shamir import SHARE_BYTES
from fedfair.secagg.signing import SIGNATURE_BYTES
from fedfair.secagg.transcript import DIGEST_BYTES

_BEGIN, _MEMBER, _COUNT, _LENGTH = 2, 2, 2, 4
_ENTRY = _MEMBER + _LENGTH
_PROPOSAL = _BEGIN + 1 + 1 + 2 + 2 + 1 + 8 + 1 + 2 + 3 * DIGEST_BYTES + NONCE_BYTES


def keys_needed(members: int, graph: GraphTerms | None = None, colluders: int = 0) -> int:
    """Return how many key advertisements a member checks in a set-up, its own among them.

    Args:
        members: of the session.
        graph: the sparse graph, for which this is the most; None for the complete one.
        colluders: n_C.
    """
    if graph is None:
        return members
    voting = max(graph.committee, DEALERS)
    return min(members, 1 + graph.neighbours + voting + colluders + HONEST_DRAWERS)


def set_up_bytes(members: int, suite: Suite, graph: GraphTerms | None = None, colluders: int = 0) -> int:
    """Return how many bytes the aggregator carries, in and out, to set up a session of so many members.

    Args:
        members: of the session.
        suite: how pairs agree on keys.
        graph: the sparse graph, for which this is the most; None for the complete one.
        colluders: n_C.
    """
    others, known = members - 1, keys_needed(members, graph, colluders)
    chained, dealers, drawing = others, 0, 0
    if graph is not None:
        chained, dealers = graph.neighbours, min(DEALERS, members)
        drawing = min(members, colluders + HONEST_DRAWERS)
    advert = (
        _BEGIN + _MEMBER + _LENGTH + public_key_bytes(suite) + NONCE_BYTES + 2 * DIGEST_BYTES + SIGNATURE_BYTES
    )
    head = _BEGIN + _MEMBER + 2 * DIGEST_BYTES + _COUNT + SIGNATURE_BYTES
    sealed = _ENTRY + SEALED_SEED_BYTES
    adverts = _BEGIN + _set(members) + 3 * _COUNT + known * (_ENTRY + advert) + _proof(members, known)
    adverts += drawing * (_ENTRY + NONCE_BYTES + SIGNATURE_BYTES)
    confirm = head + chained * sealed
    confirms = _BEGIN + DIGEST_BYTES + _COUNT + min(members, chained + dealers) * (_ENTRY + head + sealed)
    total = members * (_PROPOSAL + advert + adverts + confirm + confirms)
    # Whoever deals seals its seed for all members, and needs all keys.
    total += dealers * ((others - chained) * sealed + (members - known) * (_ENTRY + advert))
    reveal = _BEGIN + _MEMBER + DIGEST_BYTES + NONCE_BYTES + SIGNATURE_BYTES
    total += drawing * (_BEGIN + _set(members) + _COUNT + _proof(members, 1) + reveal)
    # A pair of a hybrid session has one ML-KEM ciphertext: it comes, and it goes.
    return total + (KEM_CIPHERTEXT_BYTES * members * chained if suite is Suite.X25519_MLKEM768 else 0)


def site_bytes(members: int, graph: GraphTerms | None = None) -> int:
    """Return how many bytes a site sends beyond its vector in a round of so many members who all stay.

    Args:
        members: of the cohort.
        graph: the sparse graph; None for the complete one. Whoever is in its committee sends a vote besides.
    """
    others = members - 1 if graph is None else graph.neighbours
    upload = _BEGIN + 3 * DIGEST_BYTES + _MEMBER + 3 * _COUNT + SIGNATURE_BYTES
    upload += others * (_ENTRY + TAG_BYTES) + others * (_ENTRY + ENVELOPE_BYTES)
    upload += (others + 1) * (_ENTRY + SHARE_DIGEST_BYTES)
    answer = _BEGIN + DIGEST_BYTES + _MEMBER + _set(members) + _COUNT
    return upload + answer + (others + 1) * (_ENTRY + SHARE_BYTES)


def vote_bytes(members: int) -> int:
    """Return how many bytes a vote on the survivors of so many members takes."""
    return _BEGIN + DIGEST_BYTES + _MEMBER + _set(members) + SIGNATURE_BYTES


def _set(members: int) -> int:
    return _COUNT + members // 8 + 1


def _proof(members: int, shown: int) -> int:
    """Return the most bytes of the digests of those parts of a tree in which no member is shown."""
    if shown >= members:
        return 0
    return DIGEST_BYTES * shown * ((members - 1).bit_length() - shown.bit_length() + 1)
