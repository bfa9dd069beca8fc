"""The egress record of a site's acts: `egress/<name>-acts.jsonl`, an entry before each act is sent.

What a study's rounds send is on that study's own record. Beside acts, the service sends to the hub how many
entries of the record it knows and which archive it wants: numbers that all members know.
"""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime

from collaborator.standing.site import StandingSite
from fedfair.audit.head import Head, head_path, present_boot
from fedfair.audit.items import MessageKind
from fedfair.audit.keeper import AT_CONNECTION, Keeper, Ownership
from fedfair.consortium.acts import parse_act
from fedfair.plan.digest import format_digest


def record_act(site: StandingSite, raw: bytes) -> None:
    """Record an act that is about to be sent; it is on the disk when this returns.

    Args:
        site: whose act it is.
        raw: the signed act, about a study.

    Raises:
        AuditError: it cannot be recorded, so it must not be sent.
    """
    identity, writer = site.identity(), f"{site.name}-acts"
    path = site.egress_folder / f"{writer}.jsonl"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    owner = Ownership(identity.participant.federation, site.name, site.name, identity.signing_key)
    head = Head(head_path(site.folder / "state", writer), path, present_boot())
    try:
        keeper = Keeper(path, owner, format_digest(parse_act(raw).plan_digest), lambda: datetime.now(UTC), head)
    except BaseException:
        head.close()
        raise
    with closing(keeper):
        keeper.message(raw, MessageKind.ACT, AT_CONNECTION)
