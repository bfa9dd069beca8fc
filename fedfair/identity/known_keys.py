"""Finds signing keys that this machine knows, never in the file that is to be checked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fedfair.errors import IdentityError

if TYPE_CHECKING:
    from fedfair.plan.schema import Plan

MAX_KEY_BYTES = 1 << 10


def known_key(name: str, given: str | None, plan: Plan | None, cert_folder: Path) -> str | None:
    """Return the public signing key of a participant; None where nothing here says.

    Args:
        name: the participant.
        given: the key or a file that holds it, from the command line; it counts before all else.
        plan: whose roster counts next.
        cert_folder: whose NAME/signing.pub counts last.

    Returns:
        The key as it stands in a plan; it may still be malformed.

    Raises:
        IdentityError: the file that was given is too long for a key.
    """
    from fedfair.identity.store import SIGNING_PUBLIC_KEY

    own = cert_folder / name / SIGNING_PUBLIC_KEY
    if given is None and plan is not None and name in plan.federation.roster:
        given = plan.federation.roster[name]
    if given is None and own.is_file():
        given = str(own)
    if given is None or not Path(given).is_file():
        return given
    with Path(given).open("rb") as source:
        content = source.read(MAX_KEY_BYTES + 1)
    if len(content) > MAX_KEY_BYTES:
        raise IdentityError(f"{given} has more than {MAX_KEY_BYTES} bytes, so it is not a key")
    return content.decode("ascii", "replace").strip()
