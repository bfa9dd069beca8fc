"""The processor time that a masked round of a large model cannot do without, measured piece by piece.

Masks: every site makes its own and one for each other site, and the words of the rounding; the aggregator takes
one away for each site. Carrying: every vector is encrypted in records of TLS (AES-256-GCM, 16 KiB), goes through a
socket, and is decrypted, once up and once down for each site. Hashing: one SHA-256 of every upload at each end,
and one of the new model in every process. What is missing is all that makes it a federation: training, encoding,
the check of the sum, copies, frames, and files. So no federation of this design comes to this figure.
"""

from __future__ import annotations

import hashlib
import secrets
import socket
import threading
import time
from collections.abc import Callable

import numpy as np
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from fedfair.secagg.keys import Secret
from fedfair.secagg.pieces import vector_digest
from fedfair.secagg.prg import Mask, apply_masks

RECORD_BYTES = 1 << 14
SAMPLE_VALUES = 1 << 22
"""Every piece is measured on 16 MiB, and is proportional to the length."""


def floor_seconds(model_bytes: int, sites: int) -> dict[str, float]:
    """Return the processor seconds of a round by piece, and together, of all processes."""
    scale = model_bytes / (4 * SAMPLE_VALUES)
    masks = scale * sites * (sites + 1 + 0.5) * _spent(_mask)
    carrying = scale * 2 * sites * _spent(_carry)
    hashing = scale * (2 * sites * _spent(_hash) + (sites + 1) * _spent(_hash_at_once))
    return {"masks": masks, "carrying": carrying, "hashing": hashing, "together": masks + carrying + hashing}


def _spent(work: Callable[[], object], repeat: int = 5) -> float:
    """Return the least processor seconds of this process of a few runs."""
    work()
    found = []
    for _ in range(repeat):
        begun = time.process_time()
        work()
        found.append(time.process_time() - begun)
    return min(found)


_WORDS = np.zeros(SAMPLE_VALUES, np.uint32)
_RAW = bytes(4 * SAMPLE_VALUES)
_MASK = [Mask(Secret(bytes(32)), negative=False)]


def _mask() -> None:
    apply_masks(_WORDS, _MASK)


def _hash() -> None:
    vector_digest(_RAW)


def _hash_at_once() -> None:
    hashlib.sha256(_RAW)


def _carry() -> None:
    """Encrypt, send, receive and decrypt 16 MiB in records."""
    here, there = socket.socketpair()
    cipher, nonce, view = AESGCM(secrets.token_bytes(32)), bytes(12), memoryview(_RAW)
    size = RECORD_BYTES + 16

    def send() -> None:
        for start in range(0, len(view), RECORD_BYTES):
            here.sendall(cipher.encrypt(nonce, view[start : start + RECORD_BYTES], None))

    sender = threading.Thread(target=send)
    with here, there:
        sender.start()
        record = bytearray(size)
        for _ in range(len(view) // RECORD_BYTES):
            there.recv_into(record, size, socket.MSG_WAITALL)
            cipher.decrypt(nonce, bytes(record), None)
        sender.join()
