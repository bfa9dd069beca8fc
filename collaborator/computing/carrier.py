"""Carries messages between a service and its computing process: over a socket pair, TCP or a shared folder.

A message is its length (8 bytes) and its bytes, in blocks. Who receives states the most that it takes, and stops
at the first block of a message that announces more. A socket pair has two ends and no others. Over TCP and in a
folder every block is sealed with keys of that start alone:

    both sides    32 random bytes, in the clear
    keys          HKDF-SHA256(secret of this start, both, "fedfair/computing/1"), one for each direction
    a block       AES-256-GCM, its number as nonce, so that none is lost, repeated or moved

The secret is in a file that only this user can read; whoever does not know it can neither speak nor listen. No
numpy: the worker gives up what it may do before that is loaded, with the threads that it starts.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import stat
import struct
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedfair.errors import RemoteProtocolError, UnreachableError

BLOCK_BYTES = 4 << 20
SEALING_BYTES = 16
SECRET_BYTES = 32

LABEL = b"fedfair/computing/1"
_LENGTH = struct.Struct("<Q")
_BLOCK = struct.Struct("<I")

SERVICE, WORKER = b"service", b"worker"

LOOK_SECONDS = 0.002
LONGEST_LOOK_SECONDS = 0.1
"""Between two looks at a folder; each look that finds nothing lets the next one wait longer."""


class EndedError(UnreachableError):
    """The other side is not there any more."""


class Blocks(Protocol):
    """Blocks of bytes in both directions, in order."""

    def write(self, block: bytes | bytearray | memoryview) -> None:
        """Write one block. Raises EndedError."""

    def read(self) -> bytes | bytearray:
        """Return the next block, at most `BLOCK_BYTES` and a sealing. Raises EndedError, RemoteProtocolError."""

    def close(self) -> None:
        """Let the other side see the end."""


class SocketBlocks(Blocks):
    """Blocks on a connected socket, each with its length in front."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected

    def write(self, block: bytes | bytearray | memoryview) -> None:
        """Write one block; see `Blocks.write`."""
        try:
            self._socket.sendall(_BLOCK.pack(len(block)))
            self._socket.sendall(block)
        except OSError as fault:
            raise EndedError(f"the other process has ended: {fault}") from fault

    def read(self) -> bytearray:
        """Return the next block; see `Blocks.read`."""
        (length,) = _BLOCK.unpack(self._exactly(_BLOCK.size))
        if length > BLOCK_BYTES + SEALING_BYTES:
            raise RemoteProtocolError(f"a block of {length} bytes")
        return self._exactly(length)

    def _exactly(self, length: int) -> bytearray:
        found = bytearray(length)
        left = memoryview(found)
        while left:
            try:
                taken = self._socket.recv_into(left)
            except OSError as fault:
                raise EndedError(f"the other process has ended: {fault}") from fault
            if not taken:
                raise EndedError("the other process has ended")
            left = left[taken:]
        return found

    def close(self) -> None:
        """Let the other side see the end; whoever waits for a block here is woken too."""
        with contextlib.suppress(OSError):  # The other side may have closed it.
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class FolderBlocks(Blocks):
    """Blocks as files of a shared folder, which disappear as they are read.

    Args:
        folder: it exists; its end is the end of both sides.
        own: the name of this side, as `SERVICE` or `WORKER`.
        is_there: returns whether the other side still is.
    """

    def __init__(self, folder: Path, own: bytes, is_there: Callable[[], bool] = lambda: True) -> None:
        other = WORKER if own == SERVICE else SERVICE
        self._folder, self._own, self._other = folder, own.decode(), other.decode()
        self._is_there = is_there
        self._written = self._read = 0

    def write(self, block: bytes | bytearray | memoryview) -> None:
        """Write one block; see `Blocks.write`."""
        name = self._folder / f"{self._own}-{self._written}"
        part = name.with_suffix(f".{secrets.token_hex(8)}")
        try:
            # Whoever writes here too must not choose, by a link, where this is written.
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(block)
            part.replace(name)
        except OSError as fault:
            raise EndedError(f"the shared folder cannot be written: {fault}") from fault
        self._written += 1

    def read(self) -> bytes:
        """Return the next block; see `Blocks.read`."""
        name, pause = self._folder / f"{self._other}-{self._read}", LOOK_SECONDS
        while True:
            there = self._is_there() and self._folder.is_dir()
            try:
                found = _plain_file(name)
            except FileNotFoundError:
                # What it wrote before it ended is there when it is seen to have ended.
                if not there:
                    raise EndedError("the other process has ended") from None
                time.sleep(pause)
                pause = min(2 * pause, LONGEST_LOOK_SECONDS)
                continue
            except OSError as fault:
                raise EndedError(f"the shared folder cannot be read: {fault}") from fault
            name.unlink(missing_ok=True)
            self._read += 1
            return found

    def close(self) -> None:
        """Let the other side see the end: whoever made the folder removes it."""


def _plain_file(name: Path) -> bytes:
    """Return what is in a file of the length of a block; raises OSError, RemoteProtocolError."""
    with os.fdopen(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise RemoteProtocolError("a block that is no file")
        found = file.read(BLOCK_BYTES + SEALING_BYTES + 1)
    if len(found) > BLOCK_BYTES + SEALING_BYTES:
        raise RemoteProtocolError("a block that is too long")
    return found


class SealedBlocks(Blocks):
    """Blocks that only the two who know a secret can write or read.

    Args:
        carrier: what carries them.
        secret: 32 bytes of this start.
        own: the name of this side.

    Raises:
        EndedError: the other side has gone.
        RemoteProtocolError: it does not know the secret.
    """

    def __init__(self, carrier: Blocks, secret: bytes, own: bytes) -> None:
        self._carrier = carrier
        self._sent = self._taken = 0
        mine = secrets.token_bytes(SECRET_BYTES)
        carrier.write(mine)
        theirs = bytes(carrier.read())
        if len(theirs) != SECRET_BYTES or theirs == mine:
            raise RemoteProtocolError("the other process does not begin as a computing process does")
        other = WORKER if own == SERVICE else SERVICE
        salt = mine + theirs if own == SERVICE else theirs + mine
        keys = {name: HKDF(SHA256(), 32, salt, LABEL + b" " + name).derive(secret) for name in (own, other)}
        self._writing, self._reading = AESGCM(keys[own]), AESGCM(keys[other])
        self.write(own)
        if self.read() != other:
            raise RemoteProtocolError("the other process does not say who it is")

    def write(self, block: bytes | bytearray | memoryview) -> None:
        """Write one block; see `Blocks.write`."""
        self._carrier.write(self._writing.encrypt(self._sent.to_bytes(12, "little"), bytes(block), LABEL))
        self._sent += 1

    def read(self) -> bytes:
        """Return the next block; see `Blocks.read`."""
        sealed = self._carrier.read()
        try:
            found = self._reading.decrypt(self._taken.to_bytes(12, "little"), bytes(sealed), LABEL)
        except InvalidTag:
            raise RemoteProtocolError("a block that was not sealed with the keys of this start") from None
        self._taken += 1
        return found

    def close(self) -> None:
        """Let the other side see the end."""
        self._carrier.close()


class Channel:
    """Messages over blocks; one thread uses it at a time.

    Args:
        blocks: what carries them.
    """

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks

    def send(self, pieces: Sequence[bytes | memoryview]) -> None:
        """Send one message, in pieces that belong together. Raises EndedError."""
        gathered = bytearray(_LENGTH.pack(sum(map(len, pieces))))
        for piece in pieces:
            left = memoryview(piece)
            while left:
                room = BLOCK_BYTES - len(gathered)
                if not gathered and len(left) >= BLOCK_BYTES:
                    self._blocks.write(left[:BLOCK_BYTES])
                    left = left[BLOCK_BYTES:]
                    continue
                gathered += left[:room]
                left = left[room:]
                if len(gathered) == BLOCK_BYTES:
                    self._blocks.write(gathered)
                    gathered = bytearray()
        if gathered:
            self._blocks.write(gathered)

    def receive(self, limit: int) -> bytes | bytearray | memoryview:
        """Return the next message.

        Args:
            limit: the most bytes that it may have.

        Raises:
            EndedError: the other side has gone.
            RemoteProtocolError: it has more, or its blocks are not those of a message.
        """
        block = self._blocks.read()
        if len(block) < _LENGTH.size:
            raise RemoteProtocolError("a block that begins no message")
        (length,) = _LENGTH.unpack_from(block)
        if length > limit:
            raise RemoteProtocolError(f"a message of {length} bytes; at most {limit} are expected here")
        first = memoryview(block)[_LENGTH.size :]
        if len(first) >= length:
            return _whole(first, length)
        found = bytearray(first)
        while len(found) < length:
            block = self._blocks.read()
            if not block:
                raise RemoteProtocolError("an empty block")
            found += block
        return _whole(memoryview(found), length)

    def close(self) -> None:
        """Let the other side see the end."""
        self._blocks.close()


def _whole(found: memoryview, length: int) -> memoryview:
    if len(found) != length:
        raise RemoteProtocolError("the blocks of a message are longer than it")
    return found


def new_secret(file: Path) -> bytes:
    """Return a secret of one start, which a file holds from now on that only this user can read."""
    secret = secrets.token_bytes(SECRET_BYTES)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as written:
        written.write(secret)
    return secret


def taken_secret(file: Path) -> bytes:
    """Return the secret of a start and remove its file: it opens one channel.

    Raises:
        UnreachableError: it is not there, or is none.
    """
    try:
        secret = file.read_bytes()
        file.unlink(missing_ok=True)
    except OSError as fault:
        raise UnreachableError(f"the secret of this start cannot be read: {fault}") from fault
    if len(secret) != SECRET_BYTES:
        raise UnreachableError(f"{file} holds no secret of a start")
    return secret
