"""`collaborator check`: would a start work? Every step of it, without taking part.

Each item is tried even when an earlier one failed, as far as it can be, so that one visit to a site finds all of
its faults. The aggregator's view comes through its `Check` method.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

from collaborator.egress import EgressRecord
from collaborator.link import Address, ask
from collaborator.preparation import Site, foretold, introduction, load_records, read_approval
from fedfair.errors import FedfairError
from fedfair.identity.preflight import preflight
from fedfair.identity.store import SiteIdentity
from fedfair.identity.tls import channel_credentials
from fedfair.learning.binding import plan_binding
from fedfair.learning.masked_sums import guarantee
from fedfair.plan.digest import format_digest
from fedfair.wire.frames import CheckReply, CheckRequest, Hello

_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that was looked at.

    Attributes:
        name: a word or two.
        passed: whether it is as it must be.
        detail: what was found, or what is wrong.
        remedy: what to do; empty where it passed.
    """

    name: str
    passed: bool
    detail: str
    remedy: str = ""


class _Checklist:
    """Collects items; `look` returns what a step found, or None where it failed."""

    def __init__(self) -> None:
        self.items: list[Item] = []

    def look(self, name: str, step: Callable[[], _Found], words: Callable[[_Found], str]) -> _Found | None:
        try:
            found = step()
        except FedfairError as fault:
            self.items.append(Item(name, False, fault.message, fault.remedy))
            return None
        self.items.append(Item(name, True, words(found)))
        return found


def check_site(site: Site, address: Address) -> tuple[Item, ...]:
    """Return every item, in the order of a start."""
    checklist = _Checklist()
    look = checklist.look
    look("protection", lambda: guarantee(site.plan), lambda words: words)
    records = look("data", lambda: load_records(site), lambda splits: f"{len(splits.train)} training records")
    binding = look(
        "plan digest", lambda: plan_binding(site.plan, site.code.folder), lambda b: format_digest(b.digest)
    )
    identity = look("certificate", site.identity, _identity_words)
    if records is not None and binding is not None and site.keeps_ledger:
        look("privacy", partial(foretold, site, binding.digest, records), "; ".join)
    del records
    if binding is None or identity is None:
        return tuple(checklist.items)
    approval = look(
        "approval", lambda: read_approval(site, identity, binding.digest), lambda _: "of this very plan"
    )
    now = datetime.now(UTC)
    server = look(
        "connection",
        lambda: preflight(address.host, address.port, identity, now),
        lambda found: f"{address} over {found.tls_version}",
    )
    record = look("egress record", lambda: EgressRecord(site, binding.digest), lambda _: str(site.egress))
    if record is None:
        return tuple(checklist.items)
    with closing(record):
        if approval is None or server is None:
            return tuple(checklist.items)
        request = _question(introduction(site, identity, binding.digest, approval))
        credentials = channel_credentials(identity, server)
        reply = look(
            "aggregator", lambda: asyncio.run(ask(address, credentials, request, record)), lambda _: "answers"
        )
    return (*checklist.items, *_remote_items(reply))


def _question(hello: Hello) -> CheckRequest:
    return CheckRequest(
        hello.protocol_version,
        hello.software_version,
        hello.plan_digest,
        hello.approval,
        hello.certificate_binding,
        time.time(),
    )


def _identity_words(identity: SiteIdentity) -> str:
    until = f"{identity.certificate.not_valid_after_utc:%Y-%m-%d}"
    return "; ".join((f"{identity.participant.uri} until {until}", *identity.warnings))


def _remote_items(reply: CheckReply | None) -> Iterator[Item]:
    for item in reply.items if reply is not None else ():
        detail, _, remedy = item.detail.partition("   -> ")
        yield Item(f"aggregator: {item.name}", item.passed, detail, remedy)
