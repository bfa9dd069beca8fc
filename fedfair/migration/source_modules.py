"""Python sources of a foreign workspace as trees: who defines a name, and all that a definition needs.

Decides which statements have to travel together. Nothing is imported or run: a source is text, and `ast` reads
it. Names are followed within the workspace, through `from module import name`. What a name means at run time is
not looked at, so a name that two modules give to different things is refused, and so is a module used as a
whole.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from fedfair.errors import PlanError

FOREIGN = "openfl"
PRESENT = {"torch", "numpy"}
"""Packages that every site has; the standard library aside."""

Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a piece of code cannot travel.

    Attributes:
        place: file and line.
        name: what is meant.
        words: the reason, and what to do.
    """

    place: str
    name: str
    words: str


@dataclass(frozen=True)
class SourceModule:
    """A module of the workspace.

    Attributes:
        name: as it is imported, such as src.taskrunner.
        path: in the workspace, for messages.
        text: its source.
    """

    name: str
    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """The parsed source.

        Raises:
            PlanError: it is not Python.
        """
        try:
            return ast.parse(self.text)
        except SyntaxError as error:
            raise PlanError(
                f"{self.path}:{error.lineno or 1}: not Python 3: {error.msg}",
                "mend the source, or convert it from Python 2",
            ) from error
        except (ValueError, RecursionError, MemoryError) as error:
            raise PlanError(f"{self.path}: not Python: {error}", "this is not the file that was meant") from error

    @cached_property
    def bindings(self) -> Mapping[str, tuple[ast.stmt, ...]]:
        """The statements that bind each top-level name, in their order."""
        found: dict[str, list[ast.stmt]] = {}
        for statement in self.tree.body:
            for name in dict.fromkeys(_bound(statement)):
                found.setdefault(name, []).append(statement)
        return {name: tuple(statements) for name, statements in found.items()}

    @cached_property
    def raw(self) -> bytes:
        """The source in UTF-8; the columns of a tree count its bytes."""
        return self.text.encode("utf-8", errors="surrogateescape")

    @cached_property
    def _line_starts(self) -> list[int]:
        starts = [0]
        for line in self.raw.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        return starts

    def span(self, node: ast.stmt | ast.expr | ast.arg) -> tuple[int, int]:
        """Return where a node begins and ends in `raw`; its decorators are part of it."""
        first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", []))])
        column = 0 if first != node.lineno else node.col_offset
        end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or 0
        return self._line_starts[first - 1] + column, self._line_starts[end_line - 1] + end_column

    def place(self, node: ast.AST) -> str:
        """Return file and line of a node."""
        return f"{self.path}:{getattr(node, 'lineno', 1)}"


def _bound(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, Scope):
        yield statement.name
        return
    for node in ast.walk(statement):
        if isinstance(node, Scope):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                if alias.name != "*":
                    yield alias.asname or alias.name.partition(".")[0]


def names_in(node: ast.AST) -> list[str]:
    """Return every name that a piece of code mentions, each once, in its order."""
    return list(dict.fromkeys(one.id for one in ast.walk(node) if isinstance(one, ast.Name)))


@dataclass
class Collection:
    """Statements that travel together, in the order in which they have to stand.

    Attributes:
        sources: every module of the workspace by its name.
        imports: lines that import from other packages.
        packages: packages that the imports need, with the place of the first.
        pieces: source texts of definitions.
        obstacles: why something cannot travel.
    """

    sources: Mapping[str, SourceModule]
    imports: dict[str, None] = field(default_factory=dict)
    packages: dict[str, str] = field(default_factory=dict)
    pieces: list[str] = field(default_factory=list)
    obstacles: list[Obstacle] = field(default_factory=list)
    _done: dict[tuple[str, str], str] = field(default_factory=dict)
    _owners: dict[str, str] = field(default_factory=dict)

    def need(self, module: SourceModule, names: Iterable[str], user: ast.AST) -> None:
        """Collect what binds these names in a module, and all that it needs in turn."""
        for name in names:
            self._need(module, name, user)

    def claim(self, name: str, module: SourceModule) -> None:
        """Say that a name is defined already, by this module's own piece."""
        self._owners[name] = module.name
        self._done[module.name, name] = name

    def _need(self, module: SourceModule, name: str, user: ast.AST) -> None:
        if (module.name, name) in self._done:
            return
        self._done[module.name, name] = name
        statements = module.bindings.get(name)
        if statements is None:
            if not hasattr(builtins, name):
                self._from_star(module, name)
            return
        for statement in statements:
            if isinstance(statement, ast.Import):
                self._import_whole(module, statement, name, user)
            elif isinstance(statement, ast.ImportFrom):
                self._import_name(module, statement, name, user)
            else:
                self._define(module, statement, name)

    def _define(self, module: SourceModule, statement: ast.stmt, name: str) -> None:
        owner = self._owners.setdefault(name, module.name)
        if owner != module.name:
            words = f"{name} has another meaning in {owner.replace('.', '/')}.py: rename one of them"
            self.obstacles.append(Obstacle(module.place(statement), name, words))
            return
        for bound in _bound(statement):
            self._owners.setdefault(bound, module.name)
            self._done.setdefault((module.name, bound), bound)
        self.need(module, names_in(statement), statement)
        start, end = module.span(statement)
        text = module.raw[start:end].decode("utf-8", errors="surrogateescape")
        if text not in self.pieces:
            self.pieces.append(text)

    def _import_name(self, module: SourceModule, statement: ast.ImportFrom, name: str, user: ast.AST) -> None:
        alias = next(one for one in statement.names if (one.asname or one.name) == name)
        origin = _absolute(module, statement)
        if origin.partition(".")[0] == FOREIGN:
            self._foreign(module, user, f"{origin}.{alias.name}")
            return
        inner = self.sources.get(origin)
        whole = f"{origin}.{alias.name}" in self.sources and (inner is None or alias.name not in inner.bindings)
        if whole or (inner is None and statement.level):
            words = f"the module {alias.name} is used as a whole: import its names, as in from module import name"
            self.obstacles.append(Obstacle(module.place(statement), alias.name, words))
        elif inner is None:
            self._external(module, statement, origin, f"from {origin} import {_alias(alias)}")
        elif alias.name not in inner.bindings:
            words = f"{inner.path} does not define {alias.name}"
            self.obstacles.append(Obstacle(module.place(statement), alias.name, words))
        else:
            self._need(inner, alias.name, statement)
            if alias.asname not in (None, alias.name):
                self.pieces.append(f"{alias.asname} = {alias.name}")

    def _import_whole(self, module: SourceModule, statement: ast.Import, name: str, user: ast.AST) -> None:
        alias = next(one for one in statement.names if (one.asname or one.name.partition(".")[0]) == name)
        if alias.name.partition(".")[0] == FOREIGN:
            self._foreign(module, user, alias.name)
        elif alias.name in self.sources or alias.name.partition(".")[0] in self.sources:
            words = f"the module {alias.name} is used as a whole: import its names, as in from module import name"
            self.obstacles.append(Obstacle(module.place(statement), alias.name, words))
        else:
            self._external(module, statement, alias.name, f"import {_alias(alias)}")

    def _external(self, module: SourceModule, statement: ast.stmt, origin: str, line: str) -> None:
        self.imports[line] = None
        package = origin.partition(".")[0]
        if package not in PRESENT and package not in sys.stdlib_module_names:
            self.packages.setdefault(package, module.place(statement))

    def _foreign(self, module: SourceModule, user: ast.AST, name: str) -> None:
        words = f"uses {name}, which is no part of the model: write it without OpenFL"
        self.obstacles.append(Obstacle(module.place(user), name, words))

    def _from_star(self, module: SourceModule, name: str) -> None:
        """Collect a name that nothing here binds from what the module imports whole; it may be a local one."""
        for statement in module.tree.body:
            if not (isinstance(statement, ast.ImportFrom) and statement.names[0].name == "*"):
                continue
            origin = _absolute(module, statement)
            inner = self.sources.get(origin)
            if inner is not None and name in inner.bindings:
                self._need(inner, name, statement)
            elif inner is None and origin.partition(".")[0] != FOREIGN:
                self._external(module, statement, origin, f"from {origin} import *")


def _absolute(module: SourceModule, statement: ast.ImportFrom) -> str:
    if not statement.level:
        return statement.module or ""
    package = module.name.split(".")
    if not module.path.endswith("__init__.py"):
        package = package[:-1]
    package = package[: len(package) - (statement.level - 1)]
    return ".".join([*package, *([statement.module] if statement.module else [])])


def _alias(alias: ast.alias) -> str:
    return alias.name if alias.asname is None else f"{alias.name} as {alias.asname}"


def foreign_names(module: SourceModule) -> set[str]:
    """Return the names that a module imports from OpenFL."""
    found = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and _absolute(module, node).partition(".")[0] == FOREIGN:
            found |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.asname or FOREIGN for alias in node.names if alias.name.partition(".")[0] == FOREIGN}
    return found


def unfilled(module: SourceModule) -> list[Obstacle]:
    """Return an obstacle for each statement by which a module, such as a template, refuses to be imported."""
    words = (
        "the file raises an error when it is imported: the template was not filled in, or the line was not removed"
    )
    return [
        Obstacle(module.place(one), module.path, words) for one in module.tree.body if isinstance(one, ast.Raise)
    ]
