"""A key that an ssh-agent holds signs here, and never leaves the agent.

Speaks what is needed of the agent's protocol over its socket: the list of identities, and one signature. A plain
Ed25519 key signs the very bytes that it is given, so its signature is that of any other Ed25519 key. A hardware
key (sk-ssh-ed25519) signs another message, with the device's own counter in it, which nothing here verifies: it is
named as what it is and not used. Source: draft-miller-ssh-agent, sections 3.5 and 3.6.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fedfair.errors import IdentityError
from fedfair.process.printable import printable

SOCKET_VARIABLE = "SSH_AUTH_SOCK"
"""The variable that names the agent's socket."""

MAX_ANSWER_BYTES = 256 << 10
SECONDS = 120.0
"""An agent may ask its person first."""

_REQUEST_IDENTITIES, _IDENTITIES_ANSWER = 11, 12
_SIGN_REQUEST, _SIGN_RESPONSE = 13, 14
_PLAIN = b"ssh-ed25519"
_HARDWARE = b"sk-ssh-ed25519@openssh.com"
_U32 = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class AgentKey:
    """One key of an agent.

    Attributes:
        public: 32 bytes.
        comment: as the person named it.
        is_hardware: whether a device holds it; then it cannot sign here.
    """

    public: bytes
    comment: str
    is_hardware: bool


def agent_socket(environment: Mapping[str, str]) -> Path | None:
    """Return where the agent listens; None where there is none."""
    named = environment.get(SOCKET_VARIABLE)
    return Path(named) if named else None


def agent_keys(place: Path) -> tuple[AgentKey, ...]:
    """Return the Ed25519 keys of an agent, with those that hardware holds.

    Args:
        place: the agent's socket.

    Raises:
        IdentityError: it does not answer, or not as an agent does.
    """
    reader = _Reader(_asked(place, bytes([_REQUEST_IDENTITIES]), _IDENTITIES_ANSWER))
    found = []
    for _ in range(reader.number()):
        blob, comment = _Reader(reader.text()), printable(reader.text().decode("utf-8", "replace"))
        kind = blob.text()
        if kind in {_PLAIN, _HARDWARE}:
            found.append(AgentKey(blob.text(), comment, kind == _HARDWARE))
    return tuple(found)


def agent_signature(place: Path, public: bytes, message: bytes) -> bytes:
    """Return the signature of a message by a plain Ed25519 key of an agent, 64 bytes; it is not verified here.

    Args:
        place: the agent's socket.
        public: which key, 32 bytes.
        message: what is signed.

    Raises:
        IdentityError: the agent does not have the key, or its person says no.
    """
    blob = _texts(_PLAIN, public)
    asked = bytes([_SIGN_REQUEST]) + _texts(blob, message) + _U32.pack(0)
    signature = _Reader(_Reader(_asked(place, asked, _SIGN_RESPONSE)).text())
    if signature.text() != _PLAIN:
        raise IdentityError("the ssh-agent signed in another form than Ed25519's")
    return signature.text()


def _asked(place: Path, message: bytes, expected: int) -> bytes:
    """Return what an agent answers, without the byte that says of which kind it is."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(SECONDS)
            connection.connect(str(place))
            connection.sendall(_texts(message))
            with connection.makefile("rb") as stream:
                length = _Reader(stream.read(_U32.size)).number()
                answer = stream.read(length) if 0 < length <= MAX_ANSWER_BYTES else b""
    except OSError as error:
        raise IdentityError(
            f"the ssh-agent at {place} does not answer: {error.strerror or error}",
            f"start one, or give the key's file with --key; {SOCKET_VARIABLE} names the socket",
        ) from error
    if not answer or answer[0] != expected:
        raise IdentityError(
            "the ssh-agent refuses",
            "is the key in it (`ssh-add -l`), and is the agent locked, or asking somebody?",
        )
    return answer[1:]


class _Reader:
    """Reads numbers and length-prefixed texts; what is too short is refused.

    Raises:
        IdentityError: of its methods, for an answer that ends early.
    """

    def __init__(self, raw: bytes) -> None:
        self._raw = raw

    def number(self) -> int:
        return int(_U32.unpack(self._take(_U32.size))[0])

    def text(self) -> bytes:
        return self._take(self.number())

    def _take(self, count: int) -> bytes:
        if len(self._raw) < count:
            raise IdentityError("the ssh-agent's answer ends early")
        taken, self._raw = self._raw[:count], self._raw[count:]
        return taken


def _texts(*parts: bytes) -> bytes:
    return b"".join(_U32.pack(len(part)) + part for part in parts)
