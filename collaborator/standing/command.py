"""`fedfair collaborator serve`: parse, open the site, serve; begin anew where fedfair was upgraded meanwhile."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from fedfair.news.event import LogLevel
from fedfair.news.log import LogChoice, LogFormat, LogFormatOption, LogLevelOption, json_log
from fedfair.news.processors import Processor, json_lines, text_lines
from fedfair.process.passphrase import FILE_HELP, own_passphrase
from fedfair.process.stopping import as_service
from fedfair.process.terminal import error_console, host_and_port

if TYPE_CHECKING:
    from fedfair.policy.site_config import SiteConfig

Folder = Annotated[Path, typer.Option("--site", "-s", help="This site's folder, with its collaborator.yaml.")]
HubAddress = Annotated[
    str | None, typer.Option("--hub", help="HOST:PORT of the hub, instead of that of consortium.yaml.")
]
PassphraseFile = Annotated[Path | None, typer.Option("--passphrase-file", help=FILE_HELP)]


@as_service("this site")
def serve(
    folder: Folder = Path(),
    hub: HubAddress = None,
    passphrase_file: PassphraseFile = None,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_level: LogLevelOption = LogLevel.INFO,
) -> None:
    """Stand in a federation: follow the hub, and run the studies that this site's people have approved.

    It runs until SIGTERM or Ctrl-C. People decide with `fedfair inbox`; site.yaml says when studies run.
    """
    from collaborator.standing.service import StandingService
    from collaborator.standing.site import open_site

    place = None if hub is None else host_and_port(hub, "--hub", 1)
    kept: list[bytes | None] = []

    def passphrase(config: SiteConfig) -> bytes | None:
        kept.append(own_passphrase(Path(config.cert_folder), config.collaborator, passphrase_file))
        return kept[0]

    site = open_site(folder, passphrase)
    service = StandingService(site, _publish(LogChoice(log_format, log_level)), sys.executable, place)
    asyncio.run(service.run())
    if service.is_outdated:
        begin_anew(kept[0])


def _publish(choice: LogChoice) -> Processor:
    log = json_log(choice)
    return text_lines(_say, choice.level) if log is None else json_lines(log)


def _say(line: str) -> None:
    error_console.print(Text(line), soft_wrap=True)


def begin_anew(passphrase: bytes | None) -> None:
    """Replace this process by one of the upgraded program, with the same options and the same passphrase."""
    words = list(sys.argv[1:])
    if passphrase is not None and "--passphrase-file" not in words:
        reading, writing = os.pipe()
        os.write(writing, passphrase + b"\n")
        os.close(writing)
        os.set_inheritable(reading, True)
        words += ["--passphrase-file", f"/dev/fd/{reading}"]
    program = [sys.executable, "-m", *_module(), *words]
    os.execv(sys.executable, program)  # noqa: S606 - the same program, upgraded


def _module() -> list[str]:
    """Return the module that this process runs, as Python's `-m` takes it."""
    package = Path(sys.argv[0]).parent.name
    return ["collaborator"] if package == "collaborator" else ["fedfair"]
