"""Which test files are quick to load and to run, read off what they import; nothing is imported to find out.

A file is quick if it tests one package, the one that its folder is named after, and nothing that it imports,
directly or through modules of ours, at once or in a function, is a library that takes seconds to load, opens
sockets or starts processes.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
OURS = ("fedfair", "aggregator", "collaborator", "tests")
SLOW = frozenset(
    {
        "asyncio", "cvxpy", "dp_accounting", "grpc", "grpc_tools", "matplotlib", "multiprocessing", "opacus",
        "pandas", "ray", "sklearn", "socket", "subprocess", "torch",
    }
)  # fmt: skip


def is_quick(file: Path) -> bool:
    """Return whether a test file tests one package and imports nothing slow."""
    if not (REPOSITORY / "fedfair" / file.relative_to(REPOSITORY / "tests").parts[0]).is_dir():
        return False
    seen: set[Path] = set()
    waiting = [file]
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        names = _imported(path)
        if any(name.split(".")[0] in SLOW for name in names):
            return False
        waiting += (found for name in names for found in _files(name))
    return True


def imported_files(path: Path) -> list[Path]:
    """Return the files of ours that a module imports, at once or in a function."""
    return [found for name in _imported(path) for found in _files(name)]


@functools.cache
def _imported(path: Path) -> tuple[str, ...]:
    return tuple(_names(ast.parse(path.read_text(encoding="utf-8"))))


def _names(node: ast.AST) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and child.module is not None:
            yield child.module
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        elif not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield from _names(child)


@functools.cache
def _files(name: str) -> tuple[Path, ...]:
    """Return the files that are run when a module of ours is imported; none for what is not a module of ours."""
    parts = name.split(".")
    if parts[0] not in OURS:
        return ()
    found = [REPOSITORY.joinpath(*parts[:count], "__init__.py") for count in range(1, len(parts) + 1)]
    found.append(REPOSITORY.joinpath(*parts).with_suffix(".py"))
    return tuple(path for path in found if path.is_file())
