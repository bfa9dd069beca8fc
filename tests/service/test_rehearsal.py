"""The rehearsal of `examples/service` as it is written there: its folders, then its services.

Neither Docker nor systemd is needed. The test does what a service manager does: it makes folders, hands
credentials over, replaces specifiers, and starts what the file says in the environment that the file says.
"""

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import yaml

from tests.fork_server import ENVIRONMENT, Process, commands, started
from tests.interop.processes import until_line
from tests.patience import PATIENCE
from tests.service.named import SERVICE
from tests.service.units import expanded, only, read_unit

pytestmark = pytest.mark.slow

HOSTS = {"lead": "aggregator", "clinic-a": "collaborator", "clinic-b": "collaborator"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder in which `rehearsal.sh` has made the folders of three hosts."""
    folder = tmp_path_factory.mktemp("rehearsal")
    done = subprocess.run(
        [SERVICE / "rehearsal.sh", folder / "federation", "localhost"],
        env=ENVIRONMENT | commands(folder), capture_output=True, text=True, check=False,
        timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture
def federation(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made / "federation", tmp_path / "federation"))


@contextmanager
def running(command: list[str], folder: Path, variables: Mapping[str, str]) -> Iterator[Process]:
    process = started(["-m", "fedfair.cli", *command], folder, {**ENVIRONMENT, **variables})
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def carry_out(place: Path, parts: Mapping[str, tuple[list[str], Path, dict[str, str]]]) -> None:
    """Start the aggregator, then both sites with its port, and see all three end well.

    Args:
        place: for the file that tells the port.
        parts: command, folder and variables of each host.
    """
    ready = place / "ready.json"
    with ExitStack() as stack:
        command, folder, given = parts["lead"]
        given = {**given, "FEDFAIR_LISTEN": "localhost:0", "FEDFAIR_READY_FILE": str(ready)}
        processes = [stack.enter_context(running(command, folder, given))]
        until_line(processes[0], "listening on port")
        address = f"localhost:{json.loads(ready.read_text())['port']}"
        for host in ("clinic-a", "clinic-b"):
            command, folder, given = parts[host]
            process = running(command, folder, {**given, "FEDFAIR_AGGREGATOR": address})
            processes.append(stack.enter_context(process))
        told = [process.communicate(timeout=PATIENCE)[0] for process in processes]
        assert [process.returncode for process in processes] == [0, 0, 0], told


def files_below(folder: Path) -> dict[Path, bytes]:
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_services_of_the_compose_file_run_to_the_end(federation: Path, tmp_path: Path) -> None:
    services = yaml.safe_load((SERVICE / "compose.yaml").read_text())["services"]
    parts = {}
    for service in services.values():
        source, target = service["volumes"][0].split(":")
        program = service["image"].split(":")[0].removeprefix("fedfair-")
        # As WORKDIR and CMD of the image say.
        assert target == "/federation"
        parts[source.rsplit("/", 1)[1]] = ([program, "start"], tmp_path / source, service["environment"])
    assert parts.keys() == HOSTS.keys()
    assert {folder.parent for _, folder, _ in parts.values()} == {federation}
    keys = {host: files_below(federation / host / "cert") for host in HOSTS}
    carry_out(tmp_path, parts)
    assert json.loads((federation / "lead" / "result.json").read_text())["format"] == "fedfair/result/1"
    # Compose mounts the keys read-only.
    assert {host: files_below(federation / host / "cert") for host in HOSTS} == keys


def test_the_units_run_to_the_end_and_write_nothing_but_their_state(federation: Path, tmp_path: Path) -> None:
    for site in ("clinic-a", "clinic-b"):
        (federation / site / "fedfair.env").write_text(f"FEDFAIR_NAME={site}\n")
    before = files_below(federation)
    carry_out(tmp_path, {host: begun(host, program, tmp_path) for host, program in HOSTS.items()})
    assert files_below(federation) == before
    lead = tmp_path / "state" / "fedfair" / "lead"
    assert json.loads((lead / "result.json").read_text())["format"] == "fedfair/result/1"
    assert (tmp_path / "state" / "fedfair" / "clinic-a" / "egress" / "clinic-a.jsonl").is_file()
    # A second start finds what the first has made.
    begun("clinic-a", "collaborator", tmp_path)


def begun(host: str, program: str, place: Path) -> tuple[list[str], Path, dict[str, str]]:
    """Do what systemd does before a unit's program starts; return command, folder and variables.

    Args:
        host: the instance, whose configuration is `place/federation/host`.
        program: whose unit.
        place: holds /etc/fedfair as `federation`, the state as `state`, and credentials.
    """
    service = read_unit(SERVICE / "systemd" / f"fedfair-{program}@.service")["Service"]
    given = place / "credentials" / host
    specifiers = {"i": host, "S": str(place / "state"), "d": str(given)}

    def stated(text: str) -> str:
        return expanded(text, specifiers, variables).replace("/etc/fedfair", str(place / "federation"))

    variables: dict[str, str] = {}
    variables |= dict(stated(line).split("=", 1) for line in service["Environment"])
    file = Path(stated(only(service, "EnvironmentFile").removeprefix("-")))
    if file.exists():
        variables |= dict(line.split("=", 1) for line in file.read_text().splitlines())
    for line in service["LoadCredential"]:
        name, source = stated(line).split(":", 1)
        load_credential(name, Path(source), given)
    folder = Path(stated(only(service, "WorkingDirectory")))
    folder.mkdir(parents=True, exist_ok=True)
    for line in service["ExecStartPre"]:
        subprocess.run(stated(line).split(), cwd=folder, check=True)
    return stated(only(service, "ExecStart")).split()[1:], folder, variables


def load_credential(name: str, source: Path, given: Path) -> None:
    """Copy a file; or each file of a folder, under its path with an underscore for each slash."""
    given.mkdir(parents=True, exist_ok=True)
    files = {name: source}
    if source.is_dir():
        files = {
            "_".join((name, *path.relative_to(source).parts)): path for path in source.rglob("*") if path.is_file()
        }
    for each, path in files.items():
        target = given / each
        target.unlink(missing_ok=True)
        target.write_bytes(path.read_bytes())
        target.chmod(0o400)
