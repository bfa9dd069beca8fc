"""Runs the commands of a README on this machine, as they are written.

A console block of such a README is a list of lines `host$ command`. Every host is a folder, in which its commands
run one after the other, a `cd` included; `scp` copies between these folders; the aggregator's host name means this
machine. Commands that wait for each other (`... start`) run side by side until the next one that does not.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

from aggregator.address import free_port

REPOSITORY = Path(__file__).resolve().parent.parent
AGGREGATOR = "agg.example.org"
PORT = "port: 8443"
ROUNDS = "rounds: 100"
COMMAND_SECONDS, RUN_SECONDS = 120, 240

_LINE = re.compile(r"^(?P<host>[a-z-]+)\$ (?P<command>.+)$")
_SCP = """#!/bin/sh
# Copies to another host's folder: scp FILE... HOST:FOLDER
for last; do :; done
host=${last%%:*}; folder=${last#*:}
while [ $# -gt 1 ]; do cp "$1" "$HOSTS/$host/$folder" || exit 1; shift; done
"""


class CommandFailedError(Exception):
    """A command of the README did not do what the README says; the message holds what it printed."""


def commands_of(readme: Path) -> Iterator[tuple[str, str]]:
    """Yield host and command of every line of the console blocks."""
    for block in re.findall(r"```console\n(.*?)```", readme.read_text(), re.DOTALL):
        for line in block.splitlines():
            if (match := _LINE.match(line)) is not None:
                yield match["host"], match["command"]


def run(
    readme: Path,
    folder: Path,
    variables: Mapping[str, str] | None = None,
    say: Callable[[str], None] = lambda _: None,
    hosts: Collection[str] | None = None,
    rounds: int | None = None,
) -> dict[str, Path]:
    """Run all commands.

    Args:
        readme: the page.
        folder: an existing, empty folder for the hosts' folders.
        variables: environment variables that the commands use.
        say: told every line before it runs.
        hosts: the only ones whose commands are run; None for all.
        rounds: a plan that states the usual number of rounds trains for so many; None to leave it.

    Returns:
        The folder in which each host's last command ran.

    Raises:
        CommandFailedError: a command failed, took too long or showed a traceback.
    """
    commands = [(host, command) for host, command in commands_of(readme) if hosts is None or host in hosts]
    folders = {host: folder / host for host, _ in commands}
    environment = {**_environment(folder, folders), **(variables or {})}
    running: dict[str, subprocess.Popen[bytes]] = {}
    port = free_port("localhost")
    try:
        for host, command in commands:
            say(f"{host}$ {command}")
            script = command.replace(AGGREGATOR, "localhost")
            if " start" in command:
                running[host] = _start(script, folders[host], environment, folder / f"{host}.log")
                continue
            _wait_for(running, folder)
            folders[host] = _run(f"{host}$ {command}", script, folders[host], environment, folder)
            _use_port(folders[host], port, rounds)
        _wait_for(running, folder)
    finally:
        for process in running.values():
            process.kill()
            process.wait()
    return folders


def run_example(
    readme: Path, folder: Path, shown: Collection[str], variables: Mapping[str, str] | None = None
) -> int:
    """Run all commands in a new folder, and print every line and what the lead holds at the end.

    Args:
        readme: the page.
        folder: where the hosts' folders go; it must not exist.
        shown: names of the lead's files that are printed.
        variables: environment variables that the commands use, beside FEDFAIR, the folder of this repository.

    Returns:
        The exit status: 0, or 1 after one error in words.
    """
    try:
        folder.mkdir()
        folders = run(readme, folder.resolve(), {"FEDFAIR": str(REPOSITORY), **(variables or {})}, say=print)
    except FileExistsError:
        print(f"{folder} exists; it was left alone\n  -> name another one with --folder", file=sys.stderr)
        return 1
    except CommandFailedError as fault:
        print(fault, file=sys.stderr)
        return 1
    for name in shown:
        print((folders["lead"] / name).read_text())
    return 0


def _environment(folder: Path, hosts: Mapping[str, Path]) -> dict[str, str]:
    """Make the hosts' folders and the commands that stand for other machines; return where they are found."""
    tools = folder / "bin"
    for path in (tools, *hosts.values()):
        path.mkdir()
    python = f'#!/bin/sh\nexec "{sys.executable}"'
    shims = {"scp": _SCP, "python": f'{python} "$@"\n', "fedfair": f'{python} -m fedfair.cli "$@"\n'}
    for name, text in shims.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    path = f"{tools}:{os.environ['PATH']}"
    return {
        **os.environ,
        "PATH": path,
        "HOSTS": str(folder),
        "PYTHONPATH": str(REPOSITORY),
        "OMP_NUM_THREADS": "1",
    }


def _start(script: str, folder: Path, environment: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        return subprocess.Popen(
            ["sh", "-c", f"exec {script}"], cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip


def _run(line: str, script: str, folder: Path, environment: Mapping[str, str], hosts: Path) -> Path:
    """Run one command; return the folder that the host is in afterwards."""
    # A `cd` holds for the host's later lines, as it does in a terminal.
    done = subprocess.run(
        ["sh", "-c", f"{script} && pwd > '{hosts}/pwd'"], cwd=folder, env=environment, text=True, check=False,
        capture_output=True, timeout=COMMAND_SECONDS, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    said = done.stdout + done.stderr
    if done.returncode != 0 or "Traceback" in said:
        raise CommandFailedError(f"{line}\n{said}")
    return Path((hosts / "pwd").read_text().strip())


def _wait_for(running: Mapping[str, subprocess.Popen[bytes]], hosts: Path) -> None:
    deadline = time.monotonic() + RUN_SECONDS
    while None in {process.poll() for process in running.values()} and time.monotonic() < deadline:
        if any(process.returncode not in {None, 0} for process in running.values()):
            break
        time.sleep(0.1)
    if {process.poll() for process in running.values()} - {0}:
        raise CommandFailedError("\n".join(f"{host}:\n{(hosts / f'{host}.log').read_text()}" for host in running))


def _use_port(folder: Path, port: int, rounds: int | None) -> None:
    """Take a free port: the one that the plan names may be in use here; and fewer rounds if asked to."""
    plan = folder / "plan" / "plan.yaml"
    if plan.is_file() and PORT in plan.read_text():
        text = plan.read_text().replace(PORT, f"port: {port}")
        plan.write_text(text if rounds is None else text.replace(ROUNDS, f"rounds: {rounds}"))
