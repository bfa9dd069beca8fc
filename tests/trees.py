"""The syntax trees of this repository's files, parsed once in a process, for the tests that read code."""

from __future__ import annotations

import ast
import functools
import gc
from pathlib import Path

from tests.imports import REPOSITORY


@functools.cache
def trees(folder: str) -> dict[Path, ast.Module]:
    """Return the tree of every Python file of a folder, generated ones apart, in the order of their paths."""
    # Millions of nodes that stay: the collector of garbage would visit each again and again while they are made.
    gc.disable()
    try:
        files = sorted(path for path in (REPOSITORY / folder).rglob("*.py") if "v1" not in path.parts)
        return {path: ast.parse(path.read_text(encoding="utf-8")) for path in files}
    finally:
        gc.freeze()
        gc.enable()
