"""Interrupts that wait until the work at hand is whole."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from fedfair.cli.interrupts import interrupts_caught, interrupts_deferred
from tests.patience import PATIENCE


def interrupted_twice(steps: list[str]) -> None:
    with interrupts_deferred():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        steps.append("the rest of the block")


def interrupted_and_broken() -> None:
    with interrupts_deferred():
        os.kill(os.getpid(), signal.SIGINT)
        raise ValueError("broken")


def test_an_interrupt_waits_for_the_end_of_the_block_and_names_an_error_in_it() -> None:
    steps: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        interrupted_twice(steps)
    assert steps == ["the rest of the block"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with pytest.raises(KeyboardInterrupt) as caught:
        interrupted_and_broken()
    assert isinstance(caught.value.__context__, ValueError)


def test_children_can_be_stopped_and_other_threads_change_no_handler() -> None:
    with interrupts_deferred():
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    child.send_signal(signal.SIGTERM)
    assert child.wait(PATIENCE) == -signal.SIGTERM
    seen = []

    def work() -> None:
        with interrupts_deferred():
            seen.append(signal.getsignal(signal.SIGTERM))

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]


class Dying:
    """An interrupt comes while this is destroyed."""

    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_that_python_swallows_in_a_destructor_is_not_lost() -> None:
    with interrupts_caught() as ask:
        ask()
        Dying()
        with pytest.raises(KeyboardInterrupt):
            ask()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_noticed_interrupts_are_raised_where_they_come(number: signal.Signals) -> None:
    with pytest.raises(KeyboardInterrupt), interrupts_caught():
        os.kill(os.getpid(), number)
