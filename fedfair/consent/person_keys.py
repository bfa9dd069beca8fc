"""The key of one person: in a file that a passphrase opens, for one signature at a time.

Decides where such a file is, and that it is never without a passphrase: whoever copies it has nothing yet. Which
key belongs to whom is stated in `approvers.yaml`, and a signer is only ever made for the person whose key it is.
"""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedfair.consent.approvers import APPROVERS_FILE, Person, parse_person
from fedfair.consent.decisions import Signer
from fedfair.errors import ApprovalError, IdentityError
from fedfair.identity.files import is_encrypted, private_pem, read_bytes, read_signing_key, write_private
from fedfair.plan.public_keys import format_public_key

PEOPLE_FOLDER = "people"
"""Where the keys of people are, in the folder of `collaborator.yaml`."""
LEAST_PASSPHRASE = 12
"""Characters: whoever has the file can try as many as they like."""


def key_file(site_folder: Path, name: str) -> Path:
    """Return where a person's key is, unless the person keeps it elsewhere.

    Raises:
        ApprovalError: the name can name no file.
    """
    return site_folder / PEOPLE_FOLDER / f"{parse_person(name)}.pem"


def make_person_key(path: Path, passphrase: bytes) -> str:
    """Write a new key, encrypted, and return its public half as it stands in `approvers.yaml`.

    Args:
        path: its file, which does not exist.
        passphrase: at least 12 characters.

    Raises:
        IdentityError: the file exists, or the passphrase is too short.
        OSError: it cannot be written.
    """
    if path.exists():
        raise IdentityError(f"{path} exists; it was left alone", "a new key needs another name, or another place")
    if len(passphrase.decode("utf-8", "replace")) < LEAST_PASSPHRASE:
        raise IdentityError(
            f"the passphrase has fewer than {LEAST_PASSPHRASE} characters", "five words that nobody said are good"
        )
    key = Ed25519PrivateKey.generate()
    write_private(path, private_pem(key, passphrase))
    return format_public_key(key.public_key().public_bytes_raw())


def file_signer(person: Person, path: Path, passphrase: bytes) -> Signer:
    """Return what signs with a person's key; the key is in memory for as long as the signer is.

    Args:
        person: of `approvers.yaml`.
        path: the key's file.
        passphrase: opens it.

    Raises:
        IdentityError: the file is missing, not encrypted, or does not open.
        ApprovalError: it holds the key of somebody else.
    """
    what = f"the key of {person.name}"
    if not is_encrypted(read_bytes(path, what, "`fedfair inbox person NAME` makes one")):
        raise IdentityError(f"{what} has no passphrase: {path}", "make a new one: `fedfair inbox person NAME`")
    key = read_signing_key(path, what, passphrase)
    if key.public_key().public_bytes_raw() != person.key.public_bytes_raw():
        raise ApprovalError(
            f"{path} holds another key than {APPROVERS_FILE} states for {person.name}",
            "give the right file, or decide in your own name",
        )
    return key.sign
