"""How many bytes the messages of secure aggregation take, beyond vectors, before any of them is sent.

The figures are those of the layouts of `setup_messages` and `round_messages`; a test compares them with what
travels. Everybody shares a mask with everybody, so what one site sends grows as the number of sites, and what the
aggregator carries as its square.
"""

from __future__ import annotations

from fedfair.secagg.check_seed import SEALED_SEED_BYTES
from fedfair.secagg.keys import KEM_CIPHERTEXT_BYTES, TAG_BYTES, public_key_bytes
from fedfair.secagg.params import Suite
from fedfair.secagg.sealing import ENVELOPE_BYTES, SHARE_DIGEST_BYTES
from fedfair.secagg.setup_messages import NONCE_BYTES
from fedfair.secagg.shamir import SHARE_BYTES
from fedfair.secagg.signing import SIGNATURE_BYTES
from fedfair.secagg.transcript import DIGEST_BYTES

_BEGIN, _MEMBER, _COUNT, _LENGTH = 2, 2, 2, 4
_ENTRY = _MEMBER + _LENGTH
_PROPOSAL = _BEGIN + 1 + 1 + 2 + 2 + 1 + 8 + 1 + 3 * DIGEST_BYTES + NONCE_BYTES


def set_up_bytes(members: int, suite: Suite) -> int:
    """Return how many bytes the aggregator carries, in and out, to set up a session of so many members."""
    others = members - 1
    key = _LENGTH + public_key_bytes(suite)
    advert = _BEGIN + _MEMBER + key + NONCE_BYTES + 2 * DIGEST_BYTES + SIGNATURE_BYTES
    adverts = _BEGIN + _COUNT + members * (_ENTRY + advert)
    head = _BEGIN + _MEMBER + 2 * DIGEST_BYTES + _COUNT + SIGNATURE_BYTES
    sealed = _ENTRY + SEALED_SEED_BYTES
    confirm = head + others * sealed
    confirms = _BEGIN + DIGEST_BYTES + _COUNT + members * (_ENTRY + head) + others * sealed
    # A pair of a hybrid session has one ML-KEM ciphertext: it comes, and it goes.
    ciphertexts = KEM_CIPHERTEXT_BYTES * members * others if suite is Suite.X25519_MLKEM768 else 0
    return members * (_PROPOSAL + advert + adverts + confirm + confirms) + ciphertexts


def site_bytes(members: int) -> int:
    """Return how many bytes a site sends beyond its vector in a round of so many members who all stay."""
    others = members - 1
    upload = _BEGIN + 3 * DIGEST_BYTES + _MEMBER + 3 * _COUNT + SIGNATURE_BYTES
    upload += others * (_ENTRY + TAG_BYTES) + others * (_ENTRY + ENVELOPE_BYTES)
    upload += members * (_ENTRY + SHARE_DIGEST_BYTES)
    answer = _BEGIN + DIGEST_BYTES + _MEMBER + 2 * _COUNT + members * (_MEMBER + _ENTRY + SHARE_BYTES)
    return upload + answer
