"""`fedfair study`: submit a study to the hub, follow it, fetch its result, withdraw it, read the record."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import zipfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from fedfair.cli.initial_model import put_initial_model
from fedfair.consortium.acts import ActKind
from fedfair.consortium.faults import ConsortiumError, RecordCheck
from fedfair.consortium.members import FILE, Consortium, MemberRole, read_consortium
from fedfair.consortium.record import parse_entry
from fedfair.consortium.record_file import FILE as RECORD_FILE
from fedfair.consortium.record_file import RecordFile
from fedfair.consortium.studies import ConsortiumStudy
from fedfair.errors import FedfairError, PlanError
from fedfair.identity.signing import format_signing_key
from fedfair.identity.store import load_site_identity
from fedfair.ids import ParticipantId
from fedfair.plan.deployment import check_deployment
from fedfair.plan.derived import quorum
from fedfair.plan.digest import format_digest
from fedfair.plan.enrolment import enroll
from fedfair.plan.loading import load_plan, workspace_of
from fedfair.policy.proxy import ENVIRONMENT, choose_route
from fedfair.process.passphrase import FILE_HELP, own_passphrase
from fedfair.process.terminal import DEBUG_HELP, console, say
from fedfair.run.initial_model import read_initial_model
from fedfair.wire.member_line import MemberFolder, MemberLine

app = typer.Typer(
    help="Submit a study to the hub, follow it, fetch its result, and withdraw it.",
    epilog=DEBUG_HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

Asked = TypeVar("Asked")

StudyName = Annotated[str, typer.Argument(metavar="STUDY", help="Name of the study.")]
Name = Annotated[
    str | None, typer.Option("--name", "-n", help="Who you are in consortium.yaml; by default whose key is here.")
]
Folder = Annotated[Path, typer.Option("--folder", help="Folder of consortium.yaml and of the record.")]
CertFolder = Annotated[Path, typer.Option("--cert-folder", help="Folder of your identity.")]
PassphraseFile = Annotated[Path | None, typer.Option("--passphrase-file", help=FILE_HELP)]
Words = Annotated[str, typer.Option("--words", help="Why, for all members to read.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

HERE = Path()
CERTIFICATES = Path("cert")


@dataclass(frozen=True, slots=True)
class AskingMember:
    """Who asks the hub, and from which folders."""

    folder: Path
    cert_folder: Path
    name: str | None
    passphrase_file: Path | None

    def ask(self, question: Callable[[MemberLine], Awaitable[Asked]]) -> Asked:
        """Bring the record up to date, ask, and return the answer.

        Args:
            question: is asked on the line to the hub.

        Raises:
            FedfairError: nobody answers, a check refuses something, or a file cannot be used.
        """
        name = self.name or self._only_name()
        secret = own_passphrase(self.cert_folder, name, self.passphrase_file)

        async def asked() -> Asked:
            async with MemberLine(
                MemberFolder(self.folder, name),
                lambda: load_site_identity(self.cert_folder, name, datetime.now(UTC), secret),
                lambda host, port: choose_route(host, port, ENVIRONMENT, os.environ),
            ) as line:
                await line.follow()
                return await question(line)

        return asyncio.run(asked())

    def _only_name(self) -> str:
        members = read_consortium(self.folder / FILE).members
        own = [name for name in members if (self.cert_folder / name).is_dir()]
        if len(own) != 1:
            found = ", ".join(own) or "nobody's"
            raise FedfairError(f"{self.cert_folder} has the keys of {found}", "say who you are: --name NAME")
        return own[0]


@app.command()
def submit(
    plan_file: Annotated[Path, typer.Argument(metavar="PLAN", help="The plan, such as plan/plan.yaml.")],
    study: Annotated[str, typer.Option("--study", "-s", help="Name of the study, unique for ever.")],
    words: Words = "",
    folder: Folder = HERE,
    cert_folder: CertFolder = CERTIFICATES,
    name: Name = None,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Submit a plan as a study: its workspace is packed, checked, brought to the hub, and proposed to its sites.

    Broken off, the same command continues.
    """
    from fedfair.workspace.archive import pack

    _pin_sites(plan_file, read_consortium(folder / FILE))
    put_initial_model(plan_file)
    plan = load_plan(plan_file)
    check_deployment(plan)
    digest = read_initial_model(plan_file, plan).plan_digest
    workspace = workspace_of(plan_file)
    if (workspace / "plan" / "plan.yaml").resolve() != plan_file.resolve():
        raise PlanError(f"{plan_file} is not the plan of a workspace", "name plan/plan.yaml of the workspace")
    raw = pack(workspace)

    async def submitted(line: MemberLine) -> int:
        found = line.record.studies.get(study)
        archive = hashlib.sha256(raw).digest()
        if found is not None and found.submitted.archive_digest == archive:
            return found.number
        fields = {
            "study": study, "plan_digest": digest, "words": words, "archive_digest": archive,
            "archive_bytes": len(raw), "sites": tuple(plan.federation.collaborators), "needed": quorum(plan),
        }  # fmt: skip
        line.check(ActKind.SUBMITTED, **fields)
        await line.client.bring(raw)
        return (await line.act(ActKind.SUBMITTED, **fields)).number

    number = AskingMember(folder, cert_folder, name, passphrase_file).ask(submitted)
    say(f"the study {study} is entry {number} of the record: {format_digest(digest)}, {len(raw)} bytes")
    say(f"it waits for {', '.join(plan.federation.collaborators)}; see `fedfair study status {study}`")


@app.command()
def status(
    study: Annotated[str | None, typer.Argument(metavar="STUDY", help="One study; by default all.")] = None,
    folder: Folder = HERE,
    cert_folder: CertFolder = CERTIFICATES,
    name: Name = None,
    passphrase_file: PassphraseFile = None,
    as_json: AsJson = False,
) -> None:
    """Show where studies are, by the record that this side has verified."""

    async def asked(line: MemberLine) -> list[ConsortiumStudy]:
        return [_known(line, study)] if study else list(line.record.studies.values())

    found = AskingMember(folder, cert_folder, name, passphrase_file).ask(asked)
    if as_json:
        console.print_json(json.dumps([_facts(each) for each in found]))
        return
    if not found:
        say("no study has been submitted yet")
    for each in found:
        for line in _lines(each):
            say(line)


@app.command()
def results(
    study: StudyName,
    target: Annotated[
        Path | None, typer.Option("--to", help="Folder for the result; by default results/STUDY.")
    ] = None,
    folder: Folder = HERE,
    cert_folder: CertFolder = CERTIFICATES,
    name: Name = None,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Fetch the result of a study that has ended: result.json, the sums behind it, and the model."""
    place = Path("results") / study if target is None else target

    async def fetched(line: MemberLine) -> Path:
        found = _known(line, study)
        if not found.result_digest:
            raise ConsortiumError(
                RecordCheck.PHASE,
                f"{study} is {found.phase.value} and has no result",
                "see `fedfair study status`",
            )
        place.mkdir(parents=True, exist_ok=True)
        archive = place / "result.zip"
        if not archive.exists():
            await line.client.fetch(found.result_digest, found.result_bytes, archive)
        return archive

    archive = AskingMember(folder, cert_folder, name, passphrase_file).ask(fetched)
    for path in _unpacked(archive, place):
        say(f"wrote {path}")


@app.command()
def withdraw(
    study: StudyName,
    words: Words = "",
    folder: Folder = HERE,
    cert_folder: CertFolder = CERTIFICATES,
    name: Name = None,
    passphrase_file: PassphraseFile = None,
) -> None:
    """Withdraw a study that you submitted, or any as the lead; a site withdraws its own part."""

    async def withdrawn(line: MemberLine) -> ConsortiumStudy:
        plan_digest = _known(line, study).submitted.plan_digest
        await line.act(ActKind.WITHDRAWN, study=study, plan_digest=plan_digest, words=words)
        return _known(line, study)

    found = AskingMember(folder, cert_folder, name, passphrase_file).ask(withdrawn)
    for line in _lines(found):
        say(line)


@app.command()
def record(
    folder: Folder = HERE,
    cert_folder: CertFolder = CERTIFICATES,
    name: Name = None,
    passphrase_file: PassphraseFile = None,
    offline: Annotated[bool, typer.Option("--offline", help="Verify what is here, and ask nobody.")] = False,
) -> None:
    """Print every act of the record, after all of it was verified. Two members compare the last line."""

    async def nothing(_: MemberLine) -> None: ...

    if not offline:
        AskingMember(folder, cert_folder, name, passphrase_file).ask(nothing)
    kept = RecordFile(folder / RECORD_FILE)
    verified = kept.load(read_consortium(folder / FILE))
    for line in kept.lines():
        entry = parse_entry(line)
        act = entry.act
        about = f" {act.study}" if act.study else ""
        words = f": {act.words}" if act.words else ""
        say(f"{entry.number} {act.at} {act.by} {act.kind.value}{about}{words}")
    number, digest = verified.head
    say(f"{number} acts, verified; the last entry is {format_digest(digest)}")


def _pin_sites(plan_file: Path, consortium: Consortium) -> None:
    """Pin the keys of the sites that the plan names and does not pin yet, as the list of members has them.

    Raises:
        PlanError: the plan is of another federation, or names somebody who is no site of this one.
    """
    federation = load_plan(plan_file).federation
    if federation.name != consortium.federation:
        raise PlanError(
            f"{plan_file}: federation.name is {federation.name}, and {FILE} is of {consortium.federation}",
            f"write name: {consortium.federation}",
        )
    sites = {name: one for name, one in consortium.members.items() if one.role is MemberRole.SITE}
    strangers = [name for name in federation.collaborators if name not in sites]
    if strangers:
        raise PlanError(
            f"{plan_file}: {', '.join(strangers)}: no site of {consortium.federation} by list {consortium.number}",
            f"the sites are {', '.join(sites)}",
        )
    missing = [name for name in federation.collaborators if name not in federation.roster]
    if missing:
        keys = {name: format_signing_key(sites[ParticipantId(name)].public_key) for name in missing}
        enroll(plan_file, keys, replace=False)


def _known(line: MemberLine, study: str) -> ConsortiumStudy:
    found = line.record.studies.get(study)
    if found is None:
        names = ", ".join(line.record.studies) or "none yet"
        raise ConsortiumError(RecordCheck.STUDY, f"there is no study called {study!r}", f"there are: {names}")
    return found


def _facts(study: ConsortiumStudy) -> dict[str, object]:
    return {
        "study": study.name,
        "phase": study.phase.value,
        "since": study.since,
        "by": study.submitted.by,
        "plan_digest": format_digest(study.submitted.plan_digest),
        "sites": list(study.submitted.sites),
        "needed": study.submitted.needed,
        "approved": list(study.approved),
        "refused": dict(study.refused),
        "withdrawn": dict(study.withdrawn),
        "waiting_for": list(study.waiting_for),
        "words": study.words,
    }


def _lines(study: ConsortiumStudy) -> list[str]:
    waiting = (
        f", waits for {', '.join(study.waiting_for)}" if study.waiting_for and not study.phase.is_over else ""
    )
    found = [f"{study.name}: {study.phase.value} since {study.since}, by {study.submitted.by}{waiting}"]
    found += [f"  approved: {', '.join(study.approved)}"] if study.approved else []
    found += [f"  {site} refused: {words}" for site, words in study.refused.items()]
    found += [f"  {site} withdrew: {words}" for site, words in study.withdrawn.items()]
    return [*found, f"  {study.words}"] if study.words else found


def _unpacked(file: Path, folder: Path) -> list[Path]:
    """Write the files of a result, by the last part of their names alone."""
    written = []
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            path = folder / Path(member.filename).name
            with archive.open(member) as content, path.open("wb") as target:
                while block := content.read(1 << 20):
                    target.write(block)
            written.append(path)
    return written
