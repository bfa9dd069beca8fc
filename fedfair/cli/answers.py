"""The answers to a command's questions: given on the command line, or at a terminal; never guessed.

Where no terminal can be asked, a question ends the command and names the option that answers it. A question is
printed by the console, which shows no character that could steer a terminal; only its mark is typer's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

import typer

from fedfair.errors import PlanError
from fedfair.process.terminal import say

YES = "--yes"


def at_the_terminal(question: str) -> str:
    """Return what a person types as the answer to a question."""
    say(question)
    return str(typer.prompt("", prompt_suffix="> ", default="", show_default=False)).strip()


def confirmed(question: str, *, yes: bool, option: str = YES) -> bool:
    """Return whether a question that takes yes or no is answered with yes.

    Args:
        question: what is asked.
        yes: whether the command line has answered it with yes.
        option: which option does that.

    Raises:
        PlanError: nothing answers, and there is no terminal to ask.
    """
    if yes:
        return True
    try:
        return typer.confirm(question)
    except typer.Abort:
        if sys.stdin.isatty():
            raise
        raise _no_one_to_ask(question, option) from None


def _no_one_to_ask(question: str, option: str) -> PlanError:
    return PlanError(f"there is a question, and no terminal to ask: {question}", f"answer with {option}")


@dataclass(frozen=True, slots=True)
class Answers:
    """How questions are answered.

    Attributes:
        ask: returns what a person types; None where there is no terminal.
        yes: whether a question that only delays is answered with yes; none that vouches for something is.
    """

    ask: Callable[[str], str] | None
    yes: bool = False

    def confirm(self, question: str, option: str, otherwise: str) -> None:
        """Continue after a yes.

        Args:
            question: takes yes or no.
            option: what answers it on the command line.
            otherwise: what was not done after a no.

        Raises:
            PlanError: the answer is no, or there is no terminal.
        """
        if not self.yes:
            self.certain(question, option, otherwise)

    def certain(self, question: str, option: str, otherwise: str) -> None:
        """Continue after a yes of a person, whatever `yes` says: the person vouches for what was shown.

        Args:
            question: takes yes or no.
            option: what answers it on the command line.
            otherwise: what was not done after a no.

        Raises:
            PlanError: the answer is no, or there is no terminal.
        """
        if self.text(f"{question} [y/N]", option).lower() not in {"y", "yes"}:
            raise PlanError(otherwise, "the same command asks again")

    def text(self, question: str, option: str) -> str:
        """Return the answer to a question.

        Raises:
            PlanError: there is no terminal.
        """
        if self.ask is None:
            raise _no_one_to_ask(question, option)
        return self.ask(question)
