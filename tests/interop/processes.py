"""The real processes of one test, as an operator starts them; all but their loading, which is done once."""

import json
import subprocess

from fedfair.cli.loopback import Workspace
from tests.fork_server import ENVIRONMENT, Process, Server, started
from tests.patience import PATIENCE


class Started:
    """The processes of one test; none outlives it."""

    def __init__(self) -> None:
        self.workspace: Workspace | None = None
        self.running: list[Process] = []
        self.port = 0
        self.environment: dict[str, str] = ENVIRONMENT
        self.server: Server | None = None
        """Whose forks the processes are, where they share what only a new interpreter would read."""

    def start(self, *words: str) -> Process:
        """Start Python with these words in the folder of the federation."""
        assert self.workspace is not None
        start = started if self.server is None else self.server.fork
        process = start(words, self.workspace.folder, self.environment)
        self.running.append(process)
        return process

    def aggregator(self, *words: str, command: str = "start") -> Process:
        """Start the aggregator and wait until it listens."""
        listen = f"localhost:{self.port}"
        process = self.start("-m", "aggregator", command, "--listen", listen, "--ready-file", "ready.json", *words)
        until_line(process, "listening on port")
        assert self.workspace is not None
        self.port = json.loads((self.workspace.folder / "ready.json").read_text())["port"]
        return process

    def collaborator(self, name: str, *words: str) -> Process:
        place = f"localhost:{self.port}"
        return self.start("-m", "collaborator", "start", "-n", name, "-c", f"{name}.yaml", "-a", place, *words)

    def command(self, module: str, *words: str) -> subprocess.CompletedProcess[str]:
        process = self.start("-m", module, *words)
        output, _ = process.communicate(timeout=PATIENCE)
        return subprocess.CompletedProcess(process.args, process.returncode, output)


def start_everybody(started: Started) -> list[Process]:
    """Start a whole federation, the aggregator first; all find each other by themselves and say little."""
    assert started.workspace is not None
    sites = started.workspace.collaborators
    return [
        started.start("-m", "aggregator", "start", "--quiet"),
        *(
            started.start("-m", "collaborator", "start", "-n", name, "-c", f"{name}.yaml", "--quiet")
            for name in sites
        ),
    ]


def until_line(process: Process, words: str) -> str:
    """Read a process's output up to the line that holds these words; pytest's own time limit bounds the wait."""
    assert process.stdout is not None
    seen = []
    for line in process.stdout:
        seen.append(line)
        if words in line:
            return line
    raise AssertionError(f"{process.args} ended without {words!r}:\n" + "".join(seen))


def ended(process: Process) -> tuple[int, str]:
    """Wait for the end of a process; return its status and the rest of its output."""
    output, _ = process.communicate(timeout=PATIENCE)
    return process.returncode, output
