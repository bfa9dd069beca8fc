"""The archives of a hub: brought in pieces by those who submit, checked, and fetched by those who may.

An archive is kept under its digest as soon as an act of its author names it and all of `check_archive` holds. What
was brought and not submitted is the author's own, in a folder of its own; of each author the newest two are kept.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from aggregator.hub.folder import HubFolder
from aggregator.preparation import initial_binding
from fedfair.consortium.acts import Act
from fedfair.consortium.faults import ConsortiumError, RecordCheck
from fedfair.consortium.members import Consortium
from fedfair.errors import FedfairError
from fedfair.identity.signing import parse_signing_key
from fedfair.ids import ParticipantId
from fedfair.plan.deployment import check_deployment
from fedfair.plan.derived import quorum
from fedfair.plan.digest import format_digest
from fedfair.plan.loading import load_plan
from fedfair.plan.schema import Plan
from fedfair.wire.hub import PutRequest
from fedfair.workspace.archive import read_archive, unpack

PLAN_FILE = Path("plan") / "plan.yaml"
MAX_UPLOADS = 2
"""Archives of one author that are on their way or wait for their act."""


class ArchiveStore:
    """The archives of one hub; one thread at a time.

    Args:
        folder: of the hub.
        most_bytes: of one archive.
    """

    def __init__(self, folder: HubFolder, most_bytes: int) -> None:
        self._folder = folder
        self._most_bytes = most_bytes

    def put(self, author: ParticipantId, request: PutRequest) -> int:
        """Take bytes of an archive, and return how many are here from its beginning.

        Args:
            author: who brings them.
            request: the bytes; where they do not follow what is here, nothing is taken.

        Raises:
            ConsortiumError: the archive is too long, or is not what its digest says.
            OSError: it cannot be written.
        """
        if self._folder.archive(request.digest).is_file():
            return request.length
        if not 0 < request.length <= self._most_bytes:
            raise ConsortiumError(
                RecordCheck.LIMIT,
                f"an archive of {request.length} bytes; this hub takes at most {self._most_bytes}",
                "leave out what is not needed, or ask the hub's operator for a higher archive_bytes",
            )
        path = self._upload(author, request.digest)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._make_room(path)
        held = path.stat().st_size if path.is_file() else 0
        if held != request.offset or not request.data:
            return min(held, request.length)
        with path.open("ab") as target:
            try:
                target.write(request.data)
                target.flush()
                os.fsync(target.fileno())
            except OSError:
                os.ftruncate(target.fileno(), held)
                raise
        held += len(request.data)
        if held == request.length:
            self._check_whole(path, request.digest)
        return held

    def take(self, act: Act, consortium: Consortium) -> None:
        """Check the archive of a submission and keep it.

        Args:
            act: the submission; its author has brought the archive.
            consortium: the present members.

        Raises:
            ConsortiumError: it is not here, or not what the act says.
        """
        kept = self._folder.archive(act.archive_digest)
        path = kept if kept.is_file() else self._upload(ParticipantId(act.by), act.archive_digest)
        if not path.is_file() or path.stat().st_size != act.archive_bytes:
            raise ConsortiumError(
                RecordCheck.ARCHIVE,
                f"{act.by} has not brought {format_digest(act.archive_digest)} of {act.archive_bytes} bytes",
                "submit again: `fedfair study submit` continues where it was broken off",
            )
        check_archive(path, act, consortium, self._folder.uploads)
        path.replace(kept)

    def _upload(self, author: ParticipantId, digest: bytes) -> Path:
        return self._folder.uploads / author / digest.hex()

    @staticmethod
    def _make_room(path: Path) -> None:
        others = sorted(
            (each for each in path.parent.iterdir() if each != path), key=lambda at: at.stat().st_mtime
        )
        for each in others[: max(0, len(others) - MAX_UPLOADS + 1)]:
            each.unlink()

    @staticmethod
    def _check_whole(path: Path, digest: bytes) -> None:
        with path.open("rb") as source:
            found = hashlib.file_digest(source, "sha256").digest()
        if found != digest:
            path.unlink()
            raise ConsortiumError(
                RecordCheck.ARCHIVE,
                f"what was brought is {format_digest(found)}, not {format_digest(digest)}",
                "bring it again",
            )


def check_archive(path: Path, act: Act, consortium: Consortium, room: Path) -> None:
    """Check that an archive is the study that its act says.

    Args:
        path: the archive.
        act: the submission.
        consortium: the present members.
        room: a folder in which it may be unpacked for a moment.

    Raises:
        ConsortiumError: it is not sound, or its plan is another one, of others, or with other keys.
    """
    try:
        raw = read_archive(path)
        with tempfile.TemporaryDirectory(prefix=".check-", dir=room) as folder:
            unpack(raw, Path(folder))
            plan = load_plan(Path(folder) / PLAN_FILE)
            check_deployment(plan)
            digest = initial_binding(Path(folder) / PLAN_FILE).plan_digest
        _check_plan(plan, digest, act, consortium)
        _check_bytes(raw, act)
    except ConsortiumError:
        raise
    except FedfairError as error:
        raise ConsortiumError(RecordCheck.ARCHIVE, error.message, error.remedy) from error


def _check_bytes(raw: bytes, act: Act) -> None:
    if hashlib.sha256(raw).digest() != act.archive_digest:
        raise FedfairError("the archive is not the one that the act names", "bring it again")


def _check_plan(plan: Plan, digest: bytes, act: Act, consortium: Consortium) -> None:
    faults = {
        f"its plan is {format_digest(digest)}, the act says {format_digest(act.plan_digest)}": digest
        != act.plan_digest,
        f"its plan is of {plan.federation.name}": plan.federation.name != consortium.federation,
        f"its plan has the sites {', '.join(plan.federation.collaborators[:10])}": plan.federation.collaborators
        != act.sites,
        f"its plan needs {quorum(plan)} sites, the act says {act.needed}": quorum(plan) != act.needed,
    }
    found = [words for words, holds in faults.items() if holds]
    for name in act.sites:
        key = plan.federation.roster.get(name)
        if key is None or parse_signing_key(key) != consortium.member(name).public_key:
            found.append(f"its roster does not pin the key that the list of members has for {name}")
    if found:
        raise ConsortiumError(
            RecordCheck.ARCHIVE, found[0], "make the plan with this federation's roster, and submit it again"
        )
