"""The processor time that a masked round of a large model cannot do without, measured piece by piece.

Masks: every site makes its own and one for each other site, and the words of the rounding; the aggregator takes
one away for each site. Carrying: every vector is encrypted in records of TLS (AES-256-GCM, 16 KiB), goes through a
socket, and is decrypted, once up and once down for each site. Hashing: one SHA-256 of every upload at each end,
and one of the new model in every process. What is missing is all that makes it a federation: training, encoding,
the check of the sum, copies, frames, and files. So no federation of this design comes to this figure.

Beside it stands what gRPC takes to carry the same frames over mutual TLS with nothing behind them (`bare_grpc`):
its library copies three times what it reads. That is in place of `carrying`, and not in the sum.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta

import grpc
import numpy as np
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.x509.oid import NameOID

from fedfair.secagg.keys import Secret
from fedfair.secagg.prg import Mask, apply_masks
from fedfair.secagg.vector_digest import frame_prefix, pieces_of, vector_digest
from fedfair.wire.limits import MAX_FRAME_BYTES
from fedfair.wire.service import PARTICIPATE, PARTICIPATE_METHOD, SERVICE

RECORD_BYTES = 1 << 14
SAMPLE_VALUES = 1 << 22
"""Every piece is measured on 16 MiB, and is proportional to the length."""


def floor_seconds(model_bytes: int, sites: int) -> dict[str, float]:
    """Return the processor seconds of a round by piece, and together, of all processes."""
    scale = model_bytes / (4 * SAMPLE_VALUES)
    masks = scale * sites * (sites + 1 + 0.5) * _spent(_mask)
    carrying = scale * 2 * sites * _spent(_carry)
    hashing = scale * (2 * sites * _spent(_hash) + (sites + 1) * _spent(_hash_at_once))
    together = masks + carrying + hashing
    bare = scale * 2 * sites * asyncio.run(_bare_grpc())
    return {"masks": masks, "carrying": carrying, "hashing": hashing, "together": together, "bare_grpc": bare}


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


async def _bare_grpc(repeat: int = 6) -> float:
    """Return the least processor seconds for 16 MiB through a stream of gRPC, of both ends together."""
    found: list[float] = []

    async def echo(_frames: AsyncIterator[bytes], context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
        while True:
            for _ in pieces_of(_RAW):
                if not isinstance(await context.read(), bytes):
                    return
            await context.write(b"read")

    key, certificate = _own_certificate()
    options = (("grpc.max_receive_message_length", MAX_FRAME_BYTES),)
    server = grpc.aio.server(options=options)
    handler = {PARTICIPATE_METHOD: grpc.stream_stream_rpc_method_handler(echo)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handler),))
    port = server.add_secure_port(
        "localhost:0", grpc.ssl_server_credentials([(key, certificate)], certificate, True)
    )
    await server.start()
    shown = grpc.ssl_channel_credentials(certificate, key, certificate)
    async with grpc.aio.secure_channel(f"localhost:{port}", shown, options=options) as channel:
        call = channel.stream_stream(PARTICIPATE, bytes, bytes)(None)
        for _ in range(repeat):
            begun = time.process_time()
            for piece in pieces_of(_RAW):
                await call.write(b"".join((frame_prefix(len(piece)), piece)))
            await call.read()
            found.append(time.process_time() - begun)
        await call.done_writing()
    await server.stop(None)
    return min(found)


def _own_certificate() -> tuple[bytes, bytes]:
    """Return a key and a certificate that it has signed itself, both PEM, for both ends."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    begun = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    begun = (
        begun.serial_number(1).not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    )
    begun = begun.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
    signed = begun.add_extension(x509.BasicConstraints(True, None), critical=True).sign(key, hashes.SHA256())
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return key.private_bytes(pem, form, serialization.NoEncryption()), signed.public_bytes(pem)
