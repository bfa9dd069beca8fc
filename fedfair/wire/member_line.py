"""A member's side of a federation that stands: follow the record, post acts, keep both from a hub that lies.

    async with MemberLine(MemberFolder(Path(), "clinic-a"), load_identity) as line:
        await line.follow(wait_seconds=30)                    # every new entry, verified and on the disk
        for study in line.record.studies.values(): ...
        await line.client.fetch(study.submitted.archive_digest, study.submitted.archive_bytes, path)
        await line.act(ActKind.REFUSED, study="stroke-2", plan_digest=..., words="...")

`consortium.yaml` is what the lead gave by hand; `record.jsonl` beside it is what was verified so far.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from fedfair.consortium.acts import Act, ActKind, sign_act
from fedfair.consortium.members import FILE, read_consortium
from fedfair.consortium.record import RecordEntry
from fedfair.consortium.record_file import FILE as RECORD_FILE
from fedfair.consortium.record_file import RecordFile
from fedfair.identity.store import SiteIdentity
from fedfair.policy.proxy import DIRECT, Route
from fedfair.wire.calling import Address
from fedfair.wire.hub_client import HubClient


@dataclass(frozen=True, slots=True)
class MemberFolder:
    """Where a member keeps what it knows of its federation.

    Attributes:
        path: the folder of consortium.yaml and record.jsonl.
        name: of the member.
    """

    path: Path
    name: str


class MemberLine:
    """One member's line to the hub, with the record that it has verified; for one task at a time.

    Args:
        folder: of the member.
        identity: returns the member's present identity; called in a thread.
        route: to the hub, by what the record, or consortium.yaml, says of its place.

    Raises:
        FedfairError: consortium.yaml or record.jsonl cannot be used.

    Attributes:
        record: as far as it was verified.
        client: asks the hub.
    """

    def __init__(
        self,
        folder: MemberFolder,
        identity: Callable[[], SiteIdentity],
        route: Callable[[str, int], Route] = lambda _host, _port: DIRECT,
    ) -> None:
        self._folder, self._identity = folder, identity
        self._kept = RecordFile(folder.path / RECORD_FILE)
        self.record = self._kept.load(read_consortium(folder.path / FILE))
        host, port = self.record.consortium.host, self.record.consortium.port
        self.client = HubClient(Address(host, port, route(host, port)), identity)

    async def __aenter__(self) -> Self:
        """Return the line itself; leaving the block closes it."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the line."""
        await self.client.close()

    async def follow(self, wait_seconds: int = 0) -> None:
        """Take all entries that the hub has; where it has none that is new, let it wait for the next one.

        Args:
            wait_seconds: 0 to 60.

        Raises:
            ConsortiumError: a check refuses an entry: the hub shows another past, a forged act, or leaves one out.
            FedfairError: nobody answers, the hub refuses, or the record cannot be written.
        """
        while entries := await self.client.acts(self.record.number, wait_seconds):
            self._kept.append(self.record, entries)
            wait_seconds = 0

    async def act(self, kind: ActKind, **fields: object) -> RecordEntry:
        """Sign an act, post it, and see it in the record.

        Args:
            kind: of the act.
            fields: of the kind, as `Act` has them.

        Raises:
            ConsortiumError: the record, or the hub, refuses it by a check.
            FedfairError: nobody answers.
        """
        await self.follow()
        return await self.post(self._signed(kind, fields))

    def check(self, kind: ActKind, **fields: object) -> None:
        """Check an act against the record that is known, before anything is sent for it.

        Args:
            kind: of the act.
            fields: of the kind, as `Act` has them.

        Raises:
            ConsortiumError: a check refuses it.
        """
        self.record.check_act(self._signed(kind, fields))

    def _signed(self, kind: ActKind, fields: Mapping[str, object]) -> bytes:
        act = Act(
            kind,
            self.record.consortium.federation,
            self._folder.name,
            datetime.now(UTC).isoformat(timespec="seconds"),
            self.record.head,
            **fields,  # type: ignore[arg-type]  # checked when it is signed
        )
        return sign_act(act, self._identity().signing_key)

    async def post(self, act: bytes) -> RecordEntry:
        """Post a signed act, and see it in the record.

        Raises:
            ConsortiumError: the record, or the hub, refuses it by a check.
            FedfairError: nobody answers.
        """
        self.record.check_act(act)
        entry = await self.client.post(act)
        await self.follow()
        return self.record.check_includes(entry)
