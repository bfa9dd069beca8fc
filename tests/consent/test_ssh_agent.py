"""A real ssh-agent signs; one that answers nonsense, or holds a hardware key, is told from it."""

import os
import shutil
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedfair.errors import IdentityError
from fedfair.identity.ssh_agent import agent_keys, agent_signature, agent_socket
from tests.consent.people import KEYS

KEY = KEYS["amina"]
PUBLIC = KEY.public_key().public_bytes_raw()


def text(*parts: bytes) -> bytes:
    return b"".join(struct.pack(">I", len(part)) + part for part in parts)


@contextmanager
def agent(folder: Path) -> Iterator[Path]:
    """Run a real agent that holds one key."""
    place, key = folder / "agent", folder / "key"
    openssh = serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    key.write_bytes(KEY.private_bytes(*openssh))
    key.chmod(0o600)
    process = subprocess.Popen(["ssh-agent", "-D", "-a", str(place)], stdout=subprocess.DEVNULL)
    try:
        while not place.exists():
            assert process.poll() is None
        subprocess.run(["ssh-add", "-q", str(key)], check=True, env={**os.environ, "SSH_AUTH_SOCK": str(place)})
        yield place
    finally:
        process.terminate()
        process.wait()


@contextmanager
def answering(folder: Path, answer: bytes) -> Iterator[Path]:
    """Stand in for an agent that says one thing."""
    place = folder / "stand-in"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place))
        listener.listen()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield place
        thread.join()


@pytest.mark.skipif(shutil.which("ssh-agent") is None, reason="there is no ssh-agent here")
def test_a_real_agent_signs_with_the_key_that_it_holds(tmp_path: Path) -> None:
    with agent(tmp_path) as place:
        held = agent_keys(place)
        assert [(one.public, one.is_hardware) for one in held] == [(PUBLIC, False)]
        signature = agent_signature(place, PUBLIC, b"a message")
        KEY.public_key().verify(signature, b"a message")
        with pytest.raises(IdentityError, match="refuses"):
            agent_signature(place, Ed25519PrivateKey.generate().public_key().public_bytes_raw(), b"a message")


def test_a_hardware_key_is_named_as_one(tmp_path: Path) -> None:
    blob = text(b"sk-ssh-ed25519@openssh.com", PUBLIC, b"ssh:")
    rsa = text(b"ssh-rsa", b"e", b"n")
    listed = struct.pack(">I", 2) + text(rsa, b"another", blob, b"my\x1b[31m token")
    with answering(tmp_path, text(bytes([12]) + listed)) as place:
        (found,) = agent_keys(place)
    assert found.is_hardware
    assert "\x1b" not in found.comment


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"", "ends early"),
        (struct.pack(">I", 1 << 30), "refuses"),
        (text(bytes([5])), "refuses"),
        (text(bytes([12])), "ends early"),
        (text(bytes([12]) + struct.pack(">I", 3) + text(b"x")), "ends early"),
    ],
)
def test_an_answer_that_no_agent_gives_is_refused(tmp_path: Path, answer: bytes, expected: str) -> None:
    with answering(tmp_path, answer) as place, pytest.raises(IdentityError, match=expected):
        agent_keys(place)


def test_an_agent_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(IdentityError, match="does not answer"):
        agent_keys(tmp_path / "none")
    assert agent_socket({}) is None
    assert agent_socket({"SSH_AUTH_SOCK": "/run/a"}) == Path("/run/a")
