"""A class of a foreign workspace as source that stands alone: what belongs to OpenFL is taken out of it.

Decides which methods and statements of a class travel: those that its entries reach, without what sets an
optimiser, a loss or a seed, logs, prints, or calls OpenFL's own parts. The text of what travels stays as its
author wrote it, comments too. Which names have another meaning in fedfair is given by `ClassRules`. Nothing is
run.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from fedfair.migration.source_modules import FOREIGN, Collection, Obstacle, SourceModule, foreign_names

Method = ast.FunctionDef | ast.AsyncFunctionDef

_SILENT = {
    "print", "torch.manual_seed", "torch.cuda.manual_seed", "torch.cuda.manual_seed_all", "np.random.seed",
    "numpy.random.seed", "random.seed",
}  # fmt: skip
"""Calls that say something or seed a generator: fedfair seeds all generators from the plan."""

_SILENT_ROOTS = ("logger.", "self.logger.", "logging.", "log.")
_MOVES = {"to", "cuda", "cpu"}


@dataclass(frozen=True, slots=True)
class ClassRules:
    """Rules for carrying a class over.

    Attributes:
        base: text that its bases are replaced by.
        entries: methods that it must keep, where it has them.
        parameter: a parameter that the constructor gets after `self`; empty for none.
        start: text in place of the call of the base's constructor; empty to remove it.
        inherited: attributes that the new base has.
        dropped_attributes: attributes whose assignments are taken out.
        dropped_calls: methods of OpenFL's base that may be called for their effect alone.
        rewrite: text in place of an expression; None where it stays.
        owner: OpenFL's own name of the base, for messages.
    """

    base: str
    entries: tuple[str, ...]
    parameter: str
    start: str
    inherited: frozenset[str]
    dropped_attributes: frozenset[str]
    dropped_calls: frozenset[str]
    rewrite: Callable[[ast.expr], str | None]
    owner: str


@dataclass(frozen=True, slots=True)
class CarriedClass:
    """The class as it travels.

    Attributes:
        text: its source.
        attributes: what its methods assign to `self`.
        dropped: methods that did not travel, without those that only made an optimiser or the like.
    """

    text: str
    attributes: frozenset[str]
    dropped: tuple[Method, ...]


def dotted(node: ast.expr) -> str:
    """Return a name with its attributes, such as self.model.to; empty for any other expression."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attribute):
            root = dotted(value)
            return f"{root}.{attribute}" if root else ""
        case _:
            return ""


def carry_class(
    module: SourceModule, node: ast.ClassDef, rules: ClassRules, collection: Collection
) -> CarriedClass:
    """Return a class as it travels, and collect what it needs.

    Args:
        module: the class's module.
        node: the class.
        rules: what is done to it.
        collection: gets what the class needs, and why it cannot travel.
    """
    carrier = _Carrier(module, node, rules, foreign_names(module))
    carrier.keep()
    collection.claim(node.name, module)
    collection.obstacles.extend(carrier.obstacles())
    for name, user in carrier.names():
        collection.need(module, [name], user)
    text = carrier.text()
    try:
        ast.parse(text)
    except SyntaxError:
        words = (
            "is written so that what belongs to OpenFL cannot be cut out of it: write one statement on each line"
        )
        collection.obstacles.append(Obstacle(module.place(node), node.name, words))
    dropped = [method for name, method in carrier.methods.items() if name not in carrier.kept]
    dropped = [method for method in dropped if not carrier.is_empty(method)]
    return CarriedClass(text, frozenset(carrier.assigned()), tuple(dropped))


@dataclass
class _Carrier:
    module: SourceModule
    node: ast.ClassDef
    rules: ClassRules
    foreign: set[str]
    kept: dict[str, Method] = field(default_factory=dict)
    _dead: dict[int, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.methods = {one.name: one for one in self.node.body if isinstance(one, Method)}
        self.fields = [one for one in self.node.body if isinstance(one, ast.Assign | ast.AnnAssign)]

    def keep(self) -> None:
        """Keep what the entries reach."""
        waiting = [name for name in self.rules.entries if name in self.methods]
        while waiting:
            name = waiting.pop(0)
            if name not in self.kept:
                self.kept[name] = self.methods[name]
                waiting += [one.attr for one in self._own_attributes(self.kept[name]) if one.attr in self.methods]

    def text(self) -> str:
        """Return the source of the class without what stays behind."""
        edits = [*self._class_edits()]
        for method in self.kept.values():
            edits += self._method_edits(method)
        start, end = self.module.span(self.node)
        raw, position, parts = self.module.raw, start, []
        for first, last, instead in sorted(edits):
            parts += [raw[position:first], instead.encode()]
            position = max(position, last)
        text = b"".join([*parts, raw[position:end]]).decode("utf-8", errors="surrogateescape")
        lines = [line.rstrip() for line in text.splitlines()]
        return "\n".join(_without_gaps(lines)).rstrip()

    def is_empty(self, method: Method) -> bool:
        """Return whether a method does only what stays behind anyway."""
        return self._is_empty(method.body)

    def names(self) -> Iterator[tuple[str, ast.AST]]:
        """Yield every name that what is kept mentions, with the place."""
        for node in self._live_nodes():
            if isinstance(node, ast.Name):
                yield node.id, node

    def assigned(self) -> set[str]:
        """Return the attributes that what is kept assigns to `self`."""
        return {
            node.attr
            for node in self._live_nodes()
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and dotted(node.value) == "self"
        }

    def obstacles(self) -> Iterator[Obstacle]:
        """Yield why the class cannot stand alone."""
        named = {name for one in self.fields for target in _targets(one) for name in [dotted(target)]}
        known = self.assigned() | set(self.methods) | self.rules.inherited | named
        if "__init__" not in self.kept or not any(self._is_start(one) for one in self._statements("__init__")):
            words = f"does not call the constructor of {self.rules.owner}, so nothing is known of its start"
            yield Obstacle(self.module.place(self.node), self.node.name, words)
        told = set()
        for method in self.kept.values():
            for one in self._own_attributes(method):
                if isinstance(one.ctx, ast.Load) and one.attr not in known and one.attr not in told:
                    told.add(one.attr)
                    words = f"reads self.{one.attr}, which OpenFL's {self.rules.owner} sets: write it without"
                    yield Obstacle(self.module.place(one), f"{self.node.name}.{method.name}", words)
        yield from self._placeholders()

    def _placeholders(self) -> Iterator[Obstacle]:
        values: dict[str, list[ast.stmt]] = {}
        for node in self._live_nodes():
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    values.setdefault(dotted(target), []).append(node)
        called = {dotted(node.func) for node in self._live_nodes() if isinstance(node, ast.Call)}
        for name, statements in values.items():
            empty = all(_is_nothing(one.value) for one in statements if isinstance(one, ast.Assign))
            if empty and name.startswith("self.") and name in called:
                words = (
                    f"{name} is a placeholder without a value: the workspace is a template that was not filled in"
                )
                yield Obstacle(self.module.place(statements[0]), f"{self.node.name}", words)

    def _statements(self, method: str) -> Iterator[ast.stmt]:
        for node in ast.walk(self.methods[method]):
            if isinstance(node, ast.stmt):
                yield node

    def _own_attributes(self, method: Method) -> Iterator[ast.Attribute]:
        for node in self._live(method):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
                yield node

    def _live_nodes(self) -> Iterator[ast.AST]:
        for one in self.fields:
            if self._is_read(one):
                yield from ast.walk(one)
        for method in self.kept.values():
            yield from self._live(method)

    def _is_read(self, one: ast.Assign | ast.AnnAssign) -> bool:
        names = {dotted(target) for target in _targets(one)}
        return any(
            attribute.attr in names for method in self.kept.values() for attribute in self._own_attributes(method)
        )

    def _live(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield a node and all in it, without dead statements and rewritten expressions."""
        if isinstance(node, ast.stmt) and (self._is_dead(node) or self._is_start(node)):
            return
        if isinstance(node, ast.expr) and self.rules.rewrite(node) is not None:
            return
        yield node
        for child in ast.iter_child_nodes(node):
            yield from self._live(child)

    def _is_start(self, node: ast.AST) -> bool:
        """Return whether a statement calls the constructor of the base."""
        if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
            return False
        called = node.value.func
        if not (isinstance(called, ast.Attribute) and called.attr == "__init__"):
            return False
        above = isinstance(called.value, ast.Call) and dotted(called.value.func) == "super"
        return above or dotted(called.value) in {dotted(base) for base in self.node.bases}

    def _is_dead(self, node: ast.stmt) -> bool:
        found = self._dead.get(id(node))
        if found is None:
            self._dead[id(node)] = False  # A method that calls itself is not empty.
            found = self._dead[id(node)] = self._stays_behind(node)
        return found

    def _stays_behind(self, node: ast.stmt) -> bool:
        match node:
            case ast.Expr(value=ast.Call(func=called)):
                return self._is_dropped_call(dotted(called))
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
                return self._is_dropped_assignment(node)
            case ast.ImportFrom(module=origin):
                return (origin or "").partition(".")[0] == FOREIGN
            case ast.If() | ast.For() | ast.While() | ast.With() | ast.Try():
                suites = _suites(node)
                return bool(suites) and all(self._is_empty(suite) for suite in suites)
            case _:
                return False

    def _is_empty(self, body: Sequence[ast.stmt]) -> bool:
        return all(_is_neutral(one) or self._is_dead(one) for one in body)

    def _is_dropped_call(self, called: str) -> bool:
        if called in _SILENT or called.startswith(_SILENT_ROOTS):
            return True
        root, _, name = called.partition(".")
        if root != "self":
            return False
        if name.rpartition(".")[2] in _MOVES or name in self.rules.dropped_calls:
            return True
        return name in self.methods and self._is_empty(self.methods[name].body)

    def _is_dropped_assignment(self, node: ast.Assign | ast.AnnAssign | ast.AugAssign) -> bool:
        targets = [dotted(target) for target in _targets(node)]
        if all(target.startswith("torch.backends.") for target in targets):
            return True
        if not targets or not all(target.startswith("self.") and target.count(".") == 1 for target in targets):
            return False
        if all(target.removeprefix("self.") in self.rules.dropped_attributes for target in targets):
            return True
        if node.value is None:
            return False
        if (
            isinstance(node.value, ast.Call)
            and dotted(node.value.func).removeprefix("self.") in self.rules.dropped_calls
        ):
            return True
        mentioned = {one.id for one in ast.walk(node.value) if isinstance(one, ast.Name)}
        return bool(mentioned & self.foreign)

    def _class_edits(self) -> Iterator[tuple[int, int, str]]:
        first, last = self.node.bases[0], [*self.node.bases, *(word.value for word in self.node.keywords)][-1]
        yield self.module.span(first)[0], self.module.span(last)[1], self.rules.base
        # Decorators of a task runner are no part of a model.
        for name, method in self.methods.items():
            if name not in self.kept:
                yield self._removed(method)
        for one in self.fields:
            if not self._is_read(one):
                yield self._removed(one)

    def _method_edits(self, method: Method) -> Iterator[tuple[int, int, str]]:
        if method.name == "__init__" and self.rules.parameter:
            position = self.module.span(method.args.args[0])[1]
            yield position, position, f", {self.rules.parameter}"
        yield from self._suite_edits(method.body)

    def _suite_edits(self, body: Sequence[ast.stmt]) -> Iterator[tuple[int, int, str]]:
        left = [one for one in body if not self._is_dead(one)]
        for one in body:
            if self._is_dead(one):
                start, end, instead = self._removed(one)
                needs_body = not left and one is body[0] and not instead
                yield start, end, f"{' ' * one.col_offset}pass\n" if needs_body else instead
            elif self._is_start(one):
                yield from self._start_edits(one, alone=len(left) == 1)
            else:
                yield from self._inner_edits(one)

    def _start_edits(self, one: ast.stmt, *, alone: bool) -> Iterator[tuple[int, int, str]]:
        if self.rules.start:
            indent = " " * one.col_offset
            yield *self.module.span(one), self.rules.start.replace("\n", f"\n{indent}")
        elif alone:
            yield *self.module.span(one), "pass"
        else:
            yield self._removed(one)

    def _inner_edits(self, statement: ast.AST) -> Iterator[tuple[int, int, str]]:
        for child in ast.iter_child_nodes(statement):
            if isinstance(child, ast.expr):
                yield from self._rewritten(child)
            elif not isinstance(child, ast.stmt):
                yield from self._inner_edits(child)
        for suite in _suites(statement):
            yield from self._suite_edits(suite)

    def _rewritten(self, node: ast.AST) -> Iterator[tuple[int, int, str]]:
        if isinstance(node, ast.expr):
            instead = self.rules.rewrite(node)
            if instead is not None:
                yield *self.module.span(node), instead
                return
        for child in ast.iter_child_nodes(node):
            yield from self._rewritten(child)

    def _removed(self, node: ast.stmt) -> tuple[int, int, str]:
        """Return the edit that takes a statement out, with its line and the comments above it."""
        raw, (start, end) = self.module.raw, self.module.span(node)
        line = raw.rfind(b"\n", 0, start) + 1
        after = raw.find(b"\n", end)
        after = len(raw) if after < 0 else after
        rest = raw[end:after].strip()
        if raw[line:start].strip() or (rest and not rest.startswith(b"#")):
            return start, end, "pass"  # Another statement stands in the same line.
        while line > 0:
            above = raw.rfind(b"\n", 0, line - 1) + 1
            if not raw[above:line].strip().startswith(b"#"):
                break
            line = above
        return line, min(after + 1, len(raw)), ""


def _targets(node: ast.Assign | ast.AnnAssign | ast.AugAssign) -> list[ast.expr]:
    found = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [part for one in found for part in (one.elts if isinstance(one, ast.Tuple | ast.List) else [one])]


def _suites(node: ast.AST) -> list[list[ast.stmt]]:
    found = [getattr(node, name, None) for name in ("body", "orelse", "finalbody")]
    suites = [suite for suite in found if isinstance(suite, list) and suite]
    return suites + [handler.body for handler in getattr(node, "handlers", [])]


def _is_neutral(node: ast.stmt) -> bool:
    return isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


def _is_nothing(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and (node.value is None or node.value is ...)


def _without_gaps(lines: Sequence[str]) -> Iterator[str]:
    """Yield lines without the second of two empty ones, and without those that a class would begin with."""
    empty = True
    for line in lines:
        if line or not empty:
            yield line
        empty = not line
