"""The exit status of every kind of fault, in one table."""

import importlib
import pkgutil
import re
from collections.abc import Iterator

import pytest
import typer

import aggregator
import collaborator
import fedfair
from aggregator.commands import fault_of
from aggregator.outcome import Ending, EndState
from fedfair import errors
from fedfair.errors import ConnectionRefusedByPeerError, FedfairError, PlanError, StoppedError
from fedfair.policy.plan_check import PolicyError
from fedfair.process.exit_status import STATUS, ExitStatus, exit_status
from fedfair.process.interrupts import EXIT_BY_SIGNAL
from fedfair.process.terminal import run_app
from fedfair.rounds.exit_reasons import TRY_AGAIN, ExitReason
from fedfair.secagg.checks import SecaggError
from tests.conftest import REPOSITORY
from tests.signals import interrupts_given_back


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Give back the signals that a command line takes for the rest of its process."""
    with interrupts_given_back():
        yield


def kinds(of: type[FedfairError]) -> Iterator[type[FedfairError]]:
    for kind in of.__subclasses__():
        yield kind
        yield from kinds(kind)


@pytest.mark.parametrize(
    ("name", "status"), [("SIGTERM", ExitStatus.STOPPED), ("SIGINT", ExitStatus.INTERRUPTED), ("", 130)]
)
def test_a_service_that_sigterm_stopped_before_the_end_has_a_status_of_its_own(name: str, status: int) -> None:
    assert exit_status(StoppedError("stopped", signal_name=name)) == status


RESTART_HELPS = {
    ExitReason.STOPPED: ExitStatus.STOPPED, ExitReason.UNWRITABLE: ExitStatus.ABORTED,
    ExitReason.QUORUM_MISSING: ExitStatus.ABORTED, ExitReason.ATTEMPTS_SPENT: ExitStatus.ABORTED,
    ExitReason.RESTORED: ExitStatus.REFUSED,
}  # fmt: skip
"""The status of an aggregator by the reason why its run is not finished; every other reason is about one site."""


@pytest.mark.parametrize("why", RESTART_HELPS)
def test_a_run_that_needs_a_person_ends_with_the_status_that_no_restart_follows(why: ExitReason) -> None:
    name = "SIGTERM" if why is ExitReason.STOPPED else ""
    ending = Ending(EndState.ABORTED, why, "words", signal_name=name)
    assert exit_status(fault_of(ending, "the run was aborted", "mend it")) is RESTART_HELPS[why]


def test_every_kind_of_fault_and_those_derived_from_it_have_a_status() -> None:
    for package in (fedfair, aggregator, collaborator):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__") and "sweep.cluster" not in module.name:
                importlib.import_module(module.name)
    own = [kind for kind in kinds(FedfairError) if kind.__module__ == errors.__name__]
    assert set(own) | {FedfairError} == set(STATUS)
    # A class of another module is derived from one that says what kind of fault it is.
    assert [kind for kind in kinds(FedfairError) if FedfairError in kind.__bases__ and kind not in STATUS] == []
    assert {PolicyError, SecaggError} <= set(kinds(FedfairError))
    assert issubclass(PolicyError, PlanError)
    assert exit_status(PolicyError.__new__(PolicyError)) is ExitStatus.REFUSED
    assert exit_status(SecaggError.__new__(SecaggError)) is ExitStatus.FAULT
    # Two machines with one identity would displace each other for ever.
    assert not TRY_AGAIN[ExitReason.REPLACED]
    assert exit_status(ConnectionRefusedByPeerError("another process")) is ExitStatus.REFUSED
    page = (REPOSITORY / "docs" / "reference" / "commands.md").read_text(encoding="utf-8")
    assert [int(row) for row in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)] == sorted(ExitStatus)
    assert EXIT_BY_SIGNAL == ExitStatus.INTERRUPTED


@pytest.mark.parametrize("kind", sorted(STATUS, key=lambda kind: kind.__name__))
def test_a_fault_ends_with_its_status(kind: type[FedfairError], capsys: pytest.CaptureFixture[str]) -> None:
    app = typer.Typer()

    @app.command()
    def work() -> None:
        raise kind("the disk is blue", "paint it")

    with pytest.raises(SystemExit) as ended:
        run_app(app, [])
    assert ended.value.code == STATUS[kind]
    assert capsys.readouterr().err.endswith("the disk is blue\n  -> paint it\n")


@pytest.mark.parametrize(("answer", "status"), [(KeyboardInterrupt(), 130), ("n", 1), (EOFError(), 1)])
def test_ctrl_c_interrupts_and_no_does_not(answer: object, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    app = typer.Typer()

    @app.command()
    def work() -> None:
        typer.confirm("sure?", abort=True)

    def answered(_: str) -> str:
        if isinstance(answer, BaseException):
            raise answer
        return str(answer)

    monkeypatch.setattr("typer._click.termui.visible_prompt_func", answered)
    with pytest.raises(SystemExit) as ended:
        run_app(app, [])
    assert ended.value.code == status
