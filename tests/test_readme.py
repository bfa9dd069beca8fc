"""The README's commands, run as they are written, on as many "hosts" as they name.

A block of the README is a list of lines `host$ command`; every host is a folder here, `scp` copies between those
folders, and the aggregator's host name means this machine. Long-running commands (`... start`) run side by side.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedfair.cli.commands import app
from fedfair.plan.source import load_plan
from tests.conftest import REPOSITORY

README = REPOSITORY / "README.md"
LINE = re.compile(r"^(?P<host>[a-z-]+)\$ (?P<command>.+)$")
SCP = """#!/bin/sh
# Copies to another host's folder: scp FILE... HOST:FOLDER
for last; do :; done
host=${last%%:*}; folder=${last#*:}
while [ $# -gt 1 ]; do cp "$1" "$HOSTS/$host/$folder" || exit 1; shift; done
"""


def _commands() -> Iterator[tuple[str, str]]:
    for block in re.findall(r"```console\n(.*?)```", README.read_text(), re.DOTALL):
        for line in block.splitlines():
            if (match := LINE.match(line)) is not None:
                yield match["host"], match["command"]


@pytest.fixture
def hosts(tmp_path: Path) -> Path:
    for name in {host for host, _ in _commands()}:
        (tmp_path / name).mkdir()
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "scp").write_text(SCP)
    (tools / "scp").chmod(0o755)
    (tools / "fedfair").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m fedfair.cli "$@"\n')
    (tools / "fedfair").chmod(0o755)
    return tmp_path


def _environment(hosts: Path) -> dict[str, str]:
    path = f"{hosts / 'bin'}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "HOSTS": str(hosts), "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return int(probe.getsockname()[1])


def test_the_deployment_of_the_readme_works_as_written(hosts: Path) -> None:
    environment = _environment(hosts)
    folders = {host: hosts / host for host, _ in _commands()}
    port = _free_port()
    running: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for host, command in _commands():
            script = command.replace("agg.example.org", "localhost")
            if " start" in command:
                with (hosts / f"{host}.log").open("wb") as log:
                    running[host] = subprocess.Popen(
                        ["sh", "-c", f"exec {script}"], cwd=folders[host], env=environment,
                        stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                    )  # fmt: skip
                continue
            _wait_for(running, hosts)
            # A `cd` holds for the host's later lines, as it does in a terminal.
            done = subprocess.run(
                ["sh", "-c", f"{script} && pwd > '{hosts}/pwd'"], cwd=folders[host], env=environment, text=True,
                check=False, capture_output=True, timeout=120, stdin=subprocess.DEVNULL,
            )  # fmt: skip
            assert done.returncode == 0, f"{host}$ {command}\n{done.stdout}{done.stderr}"
            assert "Traceback" not in done.stdout + done.stderr
            folders[host] = Path((hosts / "pwd").read_text().strip())
            if "workspace create" in command:
                _use_port(folders[host] / "heart" / "plan" / "plan.yaml", port)
    finally:
        for process in running.values():
            process.kill()
            process.wait()
    result = json.loads((folders["lead"] / "result.json").read_text())
    assert result["format"] == "fedfair/result/1"
    assert result["train"]["by_group_size"]["0.1"]["worst"] < result["uniform_floor"]
    certificate = json.loads((folders["lead"] / "certificate.json").read_text())
    assert (certificate["split"], certificate["n"]) == ("test", result["test"]["n"])
    stated = {statement["group_size"]: statement["sample"] for statement in certificate["statements"]}
    told = {size: risk for size, risk in result["test"]["by_group_size"].items() if risk["worst"] is not None}
    assert {*map(float, told)} | {1.0} == {*stated}
    for size, risk in told.items():
        low, high = stated[float(size)]
        assert low <= risk["bound"][1]
        assert risk["bound"][0] <= high  # Both intervals hold the truth, so they meet.


def _wait_for(running: Mapping[str, subprocess.Popen[bytes]], hosts: Path) -> None:
    deadline = time.monotonic() + 240
    while None in {process.poll() for process in running.values()} and time.monotonic() < deadline:
        if any(process.returncode not in {None, 0} for process in running.values()):
            break
        time.sleep(0.1)
    logs = "\n".join(f"{host}:\n{(hosts / f'{host}.log').read_text()}" for host in running)
    assert {host: process.poll() for host, process in running.items()} == dict.fromkeys(running, 0), logs


def _use_port(plan: Path, port: int) -> None:
    # The port of the template may be taken on the machine that runs the tests.
    text = plan.read_text()
    assert text.count("port: 8443") == 1
    plan.write_text(text.replace("port: 8443", f"port: {port}"))


def test_the_plan_of_the_readme_is_a_plan(tmp_path: Path) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", README.read_text(), re.DOTALL)
    (tmp_path / "plan.yaml").write_text(next(block for block in blocks if "a whole one" in block))
    assert load_plan(tmp_path / "plan.yaml").training.rounds == 300


def test_every_command_of_the_readme_exists() -> None:
    # Only what stands in code, as a command or in backticks.
    groups = set(re.findall(r"(?:\$ |`)fedfair ([a-z]+(?: [a-z]+)?)", README.read_text()))
    assert len(groups) > 10
    for group in sorted(groups):
        outcome = CliRunner().invoke(app, [*group.split(), "--help"])
        assert outcome.exit_code == 0, f"fedfair {group}: {outcome.output}"
