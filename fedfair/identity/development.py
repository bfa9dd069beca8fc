"""A whole federation's identities in one folder, for demonstrations and tests.

Plays every part at once, authority and all sites, through the same functions as they would use over several hosts.
Never for production: there no machine ever holds two participants' private keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from fedfair.identity.authority_store import found_authority, make_identity
from fedfair.identity.certificate import Role
from fedfair.identity.signing import format_signing_key
from fedfair.ids import AGGREGATOR, parse_federation_name


def issue_all(
    folder: Path, federation: str, collaborators: Sequence[str], hosts: Sequence[str], now: datetime
) -> Mapping[str, str]:
    """Make an authority, an aggregator and collaborators.

    Args:
        folder: the workspace's `cert` folder; created where it is missing.
        federation: its name.
        collaborators: their names.
        hosts: names or IP addresses under which the aggregator is reached.
        now: an aware time.

    Returns:
        The plan's roster: each collaborator's name and "ed25519:<base64>".

    Raises:
        IdentityError: a name is unusable, or the folder holds identities already.
    """
    authority = found_authority(folder, parse_federation_name(federation), now, None)
    roster: dict[str, str] = {}
    for name in (AGGREGATOR, *collaborators):
        own_hosts = hosts if name == AGGREGATOR else ()
        request = make_identity(folder, authority, name, hosts=own_hosts, now=now)
        if request.role is Role.COLLABORATOR:
            roster[name] = format_signing_key(request.signing_public_key)
    return roster
