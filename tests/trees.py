"""The syntax trees of this repository's files, parsed once in a process, for the tests that read code."""

import ast
import functools
import gc
import re
from pathlib import Path
from typing import TypeVar, cast

from tests.imports import REPOSITORY

PRODUCT = ("fedfair", "aggregator", "collaborator")


@functools.cache
def trees(folder: str, word: str = "") -> dict[Path, ast.Module]:
    """Return the trees of a folder's Python files, generated ones apart, in the order of their paths.

    Args:
        folder: of the repository.
        word: a pattern; files in which it is not found are left out.
    """
    # Millions of nodes that stay: the collector of garbage would visit each again and again while they are made.
    gc.disable()
    try:
        files = sorted(path for path in (REPOSITORY / folder).rglob("*.py") if "v1" not in path.parts)
        texts = {path: path.read_text(encoding="utf-8") for path in files}
        return {path: ast.parse(text) for path, text in texts.items() if re.search(word, text)}
    finally:
        gc.freeze()
        gc.enable()


_Node = TypeVar("_Node", bound=ast.AST)


@functools.cache
def _by_kind() -> dict[type[ast.AST], list[tuple[str, ast.AST]]]:
    found: dict[type[ast.AST], list[tuple[str, ast.AST]]] = {}
    for package in PRODUCT:
        for path, tree in trees(package).items():
            place = str(path.relative_to(REPOSITORY))
            for node in ast.walk(tree):
                found.setdefault(type(node), []).append((place, node))
    return found


def nodes(kind: type[_Node]) -> list[tuple[str, _Node]]:
    """Return every node of one kind in the product, with the file in which it stands."""
    return cast("list[tuple[str, _Node]]", _by_kind().get(kind, []))


@functools.cache
def called() -> list[tuple[str, str, ast.Call]]:
    """Return every call in the product: its file, what is called as it is written, and its node."""
    return [(place, _spelt(node.func), node) for place, node in nodes(ast.Call)]


def _spelt(node: ast.expr) -> str:
    """Return an expression as it is written; names with dots, which nearly all are, by the short way."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
        return f"{_spelt(node.value)}.{node.attr}"
    return ast.unparse(node)
