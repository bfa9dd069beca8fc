"""Where the passphrase of a participant's keys comes from: a file, a systemd credential, or a person.

Decides the order, and that nobody is asked for what is not needed. A passphrase is kept in memory only. It never
comes from an environment variable or the command line: other processes of the machine can read both.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import typer

from fedfair.errors import IdentityError
from fedfair.identity.authority_store import CA_KEY
from fedfair.identity.files import CREDENTIAL, is_encrypted, read_bytes
from fedfair.identity.store import AUTHORITY_FOLDER, has_encrypted_key

FILE_HELP = "File that holds the passphrase of this participant's keys."
CREDENTIALS_DIRECTORY = "CREDENTIALS_DIRECTORY"
"""The variable in which systemd names the folder of a service's credentials."""


def read_passphrase(path: Path) -> bytes:
    """Return the passphrase in a file, without the end of its line.

    Raises:
        IdentityError: the file cannot be read, or is empty.
    """
    secret = read_bytes(path, "the passphrase").rstrip(b"\r\n")
    if not secret:
        raise IdentityError(f"the passphrase in {path} is empty")
    return secret


def own_passphrase(
    cert_folder: Path, name: str, file: Path | None, environment: Mapping[str, str] = os.environ
) -> bytes | None:
    """Return the passphrase of a participant's keys; None where none of them is encrypted.

    Args:
        cert_folder: the workspace's `cert` folder.
        name: a collaborator's name, or "aggregator".
        file: where the operator says that it is.
        environment: names the folder of systemd's credentials, if there is one.

    Raises:
        IdentityError: the keys are encrypted, and nobody says with what; or a file cannot be read.
    """
    if file is not None:
        return read_passphrase(file)
    if not has_encrypted_key(cert_folder, name):
        return None
    given = environment.get(CREDENTIALS_DIRECTORY)
    credential = None if given is None else Path(given) / CREDENTIAL
    if credential is not None and credential.exists():
        return read_passphrase(credential)
    if not sys.stdin.isatty():
        raise IdentityError(
            f"the keys of {name} in {cert_folder / name} are encrypted, and no terminal can be asked",
            f"give their passphrase with --passphrase-file FILE, or as the systemd credential {CREDENTIAL!r}",
        )
    return str(typer.prompt(f"Passphrase of the keys of {name}", hide_input=True)).encode()


def authority_passphrase(cert_folder: Path, file: Path | None) -> bytes | None:
    """Return the passphrase of the authority's key: of a file, or as somebody types it; None where it needs none.

    Raises:
        IdentityError: a file cannot be read.
    """
    if file is not None:
        return read_passphrase(file)
    key = cert_folder / AUTHORITY_FOLDER / CA_KEY
    if not key.exists() or not is_encrypted(read_bytes(key, "the authority's key")):
        return None
    return str(typer.prompt("Passphrase of the authority", hide_input=True)).encode()


def new_passphrase(file: Path | None, *, ask: bool) -> bytes | None:
    """Return what new keys are encrypted with: of a file, or as somebody types it twice; None for not at all.

    Raises:
        IdentityError: the file cannot be read, or is empty.
    """
    if file is not None:
        return read_passphrase(file)
    if not ask:
        return None
    return str(typer.prompt("Passphrase", hide_input=True, confirmation_prompt=True)).encode()
