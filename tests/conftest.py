"""Fixtures that every test may use."""

from __future__ import annotations

import functools
import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.browser import Browser, installed, started
from tests.imports import REPOSITORY, is_quick
from tests.postgres_server import NotHereError, Postgres, running_postgres

# Two runs of one commit must tell the same, so that examples follow from the tests themselves; and how long
# something takes is the machine's business. `pytest --hypothesis-profile search` looks for new examples.
PATIENT = settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("repeatable", PATIENT, derandomize=True)
settings.register_profile("search", PATIENT, max_examples=1000)
settings.load_profile("repeatable")

# A sum that several threads share is rounded otherwise than one thread's: without this, what a test finds would
# depend on the cores of a machine and on whether a test before it, in the same process, has set their number.
os.environ["OMP_NUM_THREADS"] = "1"

# A shell without job control starts what it puts in the background with Ctrl-C ignored, and tests send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# What is durable waits for the disk, and no test cuts the power: in memory, whoever waits is answered at once.
MEMORY, ROOM_BYTES = Path("/dev/shm"), 4 << 30  # noqa: S108 - pytest makes folders of its own there


def _keeps_folders(place: Path) -> bool:
    """Return whether tests may have their folders there: there is room, and what they write there can be run."""
    if not os.access(place, os.W_OK) or shutil.disk_usage(place).free < ROOM_BYTES:
        return False
    return not os.statvfs(place).f_flag & os.ST_NOEXEC


if "TMPDIR" not in os.environ and _keeps_folders(MEMORY):
    os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)


SLOW = "mark.slow"
"""A file without this text has no slow test, and is not read where these alone are asked for."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--quick", action="store_true", help="only the files that import nothing slow: tests/imports.py"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Let the workers of a run share what forks the processes of their tests, and be such forks themselves."""
    workers = config.getoption("numprocesses", None)
    if workers and not config.getoption("quick") and not hasattr(config, "workerinput"):
        from tests.fork_server import share, stand_in

        share()
        folder = tempfile.TemporaryDirectory(prefix="workers-")
        config.add_cleanup(folder.cleanup)
        config.option.tx = [f"popen//python={stand_in(Path(folder.name))}"] * workers


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if collection_path.suffix != ".py":
        return None
    if config.getoption("quick") and not is_quick(collection_path):
        return True
    # Whoever asks for the slow tests alone waits for no file without one.
    if config.getoption("markexpr") == "slow" and not _names_slow(collection_path):
        return True
    return None


@functools.cache
def _names_slow(path: Path) -> bool:
    return SLOW in path.read_text("utf-8")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Refuse a slow test of a file that would be left out where the slow tests alone are asked for.

    Raises:
        UsageError: its mark comes from elsewhere, and its own file does not name it.
    """
    if item.get_closest_marker("slow") is not None and not _names_slow(item.path):
        raise pytest.UsageError(f"{item.path}: a file of slow tests holds the text {SLOW!r}")


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name a case of bytes after its argument: packed bytes hold the second in which they were packed."""
    return argname if isinstance(val, bytes) else None


@pytest.fixture(autouse=True)
def signals_as_they_were() -> Iterator[None]:
    """Refuse a test that leaves a handler of Ctrl-C or SIGTERM behind: a later one would end at its own signal."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    assert {number: signal.getsignal(number) for number in before} == before, (
        "what a program installs needs a fork"
    )


@pytest.fixture(scope="session")
def data_root() -> Path:
    """Return the folder of the real data sets, or skip: they are not part of the repository."""
    root = Path(os.environ.get("FEDFAIR_DATA", REPOSITORY.parent / "shared" / "data"))
    if not root.is_dir():
        pytest.skip(f"real data sets not found at {root}; set FEDFAIR_DATA to their folder")
    return root


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """Return a PostgreSQL server of this session's own, or skip with the reason."""
    with ExitStack() as stack:
        try:
            server = stack.enter_context(running_postgres())
        except NotHereError as reason:
            pytest.skip(str(reason))
        yield server


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Return a browser, or skip: not every machine has one."""
    program = installed()
    if program is None:
        pytest.skip("no Chromium on this machine; `make browser` installs one where that is possible")
    with started(program, tmp_path_factory.mktemp("profile")) as running:
        yield running


LONGEST = (
    "on_ray", "reopened_processes", "docs", "demo", "heart_example", "omop_example", "continued_pages",
    "notebooks",
)  # fmt: skip
"""The files that take longest, for which a whole worker is needed."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest, then federations, which wait most: the last file keeps one worker alone."""
    first = {f"test_{name}.py": number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: first.get(item.path.name, len(first) + (item.path.parent.name != "interop")))


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collect without the collector of garbage, which leaves what was collected alone ever after."""
    del session
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
