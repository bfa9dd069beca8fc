"""The options and variables that the files of `examples/service` name, and those that the two programs have."""

import re
from pathlib import Path

import typer

import aggregator.commands
import collaborator.commands
from tests.conftest import REPOSITORY

SERVICE = REPOSITORY / "examples" / "service"
FILES = sorted(path for path in SERVICE.rglob("*") if path.is_file())
PAGES = [REPOSITORY / "docs" / "how-to" / "service.md"]
PROGRAMS = {"aggregator": aggregator.commands.app, "collaborator": collaborator.commands.app}

_LINE = re.compile(r"\b(aggregator|collaborator)[\"',\]]*[ ,]+[\"']?(start|check|evaluate)\b(?P<rest>[^\n`]*)")


def options_of(program: str, command: str) -> dict[str, str]:
    """Return the variable of each long option of a command."""
    params = typer.main.get_group(PROGRAMS[program]).commands[command].params
    return {
        name: option.envvar for option in params for name in option.opts if name.startswith("--") and option.envvar
    }


def variables_of(program: str) -> set[str]:
    """Return every variable that `start` of a program reads."""
    return set(options_of(program, "start").values())


def variables_in(text: str) -> set[str]:
    """Return every variable of fedfair that a text names."""
    return set(re.findall(r"\bFEDFAIR_[A-Z][A-Z_]*\b", text))


def flags_in(text: str) -> set[tuple[str, str, str]]:
    """Return program, command and option of every command line of a text that starts one of the programs."""
    return {
        (found[1], found[2], flag)
        for found in _LINE.finditer(text)
        for flag in re.findall(r"(?<=\s)--[a-z-]+", found["rest"])
    }


def missing_pages(path: Path) -> set[str]:
    """Return the pages, tests and examples that a file names and that do not exist."""
    named = set(re.findall(r"\b(?:docs|tests|examples)/[\w/.-]+\w", path.read_text(encoding="utf-8")))
    return {place for place in named if not (REPOSITORY / place).exists()}
