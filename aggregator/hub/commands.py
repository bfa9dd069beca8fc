"""`fedfair hub`: sign the list of members, create a hub's folder, and run it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from aggregator.address import Listen
from aggregator.hub.folder import SETTINGS_TEXT, HubFolder
from aggregator.hub.server import serve_hub
from aggregator.listening import run_serving
from aggregator.malloc import use_one_heap
from aggregator.server import write_ready_file
from fedfair.consortium.acts import Act, ActKind, sign_act
from fedfair.consortium.members import FILE, Consortium, parse_consortium, read_consortium, sign_consortium
from fedfair.consortium.record import sign_entry
from fedfair.consortium.record_file import RecordFile
from fedfair.errors import FedfairError, StateError, StoppedError
from fedfair.identity.store import load_signing_key, load_site_identity
from fedfair.ids import AGGREGATOR
from fedfair.plan.yaml_reader import read_document
from fedfair.process.environment import EnvironmentCommand
from fedfair.process.passphrase import FILE_HELP, own_passphrase
from fedfair.process.stopping import as_service
from fedfair.process.terminal import DEBUG_HELP, error_console, host_and_port, say
from fedfair.store.atomic_file import replace_file
from fedfair.wire.member_line import MemberFolder, MemberLine

app = typer.Typer(
    help="Run the hub of a federation that stands: several studies, each consented to by its sites.",
    epilog=DEBUG_HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

FIRST_ACT = "members.act"
"""Beside the first list of members: the lead's signed act, with which a record begins."""

HubPath = Annotated[Path, typer.Option("--folder", help="Folder of the hub.")]
CertFolder = Annotated[Path, typer.Option("--cert-folder", help="Folder of this host's identity.")]
PassphraseFile = Annotated[Path | None, typer.Option("--passphrase-file", help=FILE_HELP)]
ListenOn = Annotated[
    str | None,
    typer.Option("--listen", help="HOST:PORT to listen on, by default as consortium.yaml says; 0 for any port."),
]
ReadyFile = Annotated[
    Path | None,
    typer.Option("--ready-file", help="File for one JSON line with the port, once connections are accepted."),
]


@app.command(cls=EnvironmentCommand)
@as_service("the hub")
def start(
    folder: HubPath = Path(),
    listen: ListenOn = None,
    ready_file: ReadyFile = None,
    passphrase_file: PassphraseFile = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show nothing but errors.")] = False,
) -> None:
    """Run the hub in its folder until it is stopped.

    After a stop or a crash, another start resumes every running study after its last recorded round.
    """
    stated = None if listen is None else Listen(*host_and_port(listen, "--listen", 0))
    place = HubFolder(folder)
    secret = own_passphrase(place.certificates, AGGREGATOR, passphrase_file)
    use_one_heap()

    def announce(port: int) -> None:
        if ready_file is not None:
            write_ready_file(ready_file, port)

    def tell(line: str) -> None:
        if not quiet:
            error_console.print(Text(line), soft_wrap=True)

    name = run_serving(serve_hub(place, stated, announce, tell, secret))
    raise StoppedError(f"the hub was stopped ({name})", "start it again: it resumes every running study", name)


@app.command()
def create(folder: HubPath = Path(), passphrase_file: PassphraseFile = None) -> None:
    """Begin the record of a hub with the first list of members: consortium.yaml and members.act of the lead."""
    place = HubFolder(folder)
    if place.record.exists():
        raise StateError(f"{place.record} exists: this is a hub already", "`fedfair hub start`")
    consortium = read_consortium(folder / FILE)
    act = _first_act(folder / FIRST_ACT)
    secret = own_passphrase(place.certificates, AGGREGATOR, passphrase_file)
    key = load_signing_key(place.certificates, AGGREGATOR, secret)
    if key.public_key() != consortium.hub.public_key:
        raise StateError(
            f"{FILE} names another key of the hub than cert/{AGGREGATOR}/signing.pub",
            "put that line into hub.key, and have the lead sign the list: `fedfair hub members`",
        )
    kept = RecordFile(place.record)
    kept.append(kept.load(consortium), [sign_entry(1, bytes(32), act, consortium.federation, key)])
    if not place.settings_file.exists():
        place.settings_file.write_text(SETTINGS_TEXT, encoding="utf-8")
    say(f"the hub of {consortium.federation} has {len(consortium.members)} members; next: `fedfair hub start`")


@app.command()
def members(
    draft: Annotated[
        Path, typer.Argument(metavar="FILE", help="The list of members, as consortium.yaml without a signature.")
    ],
    name: Annotated[str, typer.Option("--name", "-n", help="The lead's name in it.")],
    folder: Annotated[Path, typer.Option("--folder", help="Where consortium.yaml is, or will be.")] = Path(),
    cert_folder: CertFolder = Path("cert"),
    passphrase_file: PassphraseFile = None,
) -> None:
    """Sign a list of members. The first is written for the hub's operator; a later one goes to the hub."""
    secret = own_passphrase(cert_folder, name, passphrase_file)
    key = load_signing_key(cert_folder, name, secret)
    raw = sign_consortium(read_document(draft).values, key)
    if not (folder / FILE).exists():
        consortium = parse_consortium(raw, draft)
        act = Act(ActKind.MEMBERS, consortium.federation, name, _now(), payload=raw)
        replace_file(folder / FIRST_ACT, [sign_act(act, key)])
        replace_file(folder / FILE, [raw])
        say(f"wrote {folder / FILE} and {folder / FIRST_ACT}: both are for the hub's operator, {FILE} for all")
        return
    present = asyncio.run(_posted(raw, name, folder, cert_folder, secret))
    replace_file(folder / FILE, [raw])
    say(f"list {present.number} of {len(present.members)} members is in the record")


async def _posted(raw: bytes, name: str, folder: Path, cert_folder: Path, secret: bytes | None) -> Consortium:
    place = MemberFolder(folder, name)

    async with MemberLine(place, lambda: load_site_identity(cert_folder, name, datetime.now(UTC), secret)) as line:
        await line.act(ActKind.MEMBERS, payload=raw)
        return line.record.consortium


def _first_act(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise FedfairError(
            f"{path} cannot be read: {error.strerror}",
            "the lead writes it beside consortium.yaml: `fedfair hub members`",
        ) from error


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
