"""How large the product, its tests and its pages are, and its longest classes and functions.

A line of code has a token that is neither a comment nor part of a docstring; a statement over several lines counts
as all of them. Generated protobuf code is left out. Lines of tests are all lines.
A word of a page has a letter or a digit: the bars of a table and signs of equality are none.

    python benchmarks/size.py
"""

from __future__ import annotations

import ast
import io
import json
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
PRODUCT = ("fedfair", "aggregator", "collaborator")
GENERATED = "_pb2"
CLASS_LINES, FUNCTION_LINES = 250, 60
"""The most lines that a class and a function should have."""

_WORD = re.compile(r"\S*\w\S*")
_NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of a checkout.

    Attributes:
        code: lines of code of the product, by package.
        modules: how many modules the product has.
        tests: lines of the tests.
        words: words of the pages.
        long: lines of every class and function above the limits, by place.
    """

    code: dict[str, int]
    modules: int
    tests: int
    words: int
    long: dict[str, int]


def code_lines(source: str) -> int:
    """Return the number of lines of code of a module's text."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def long_units(source: str) -> Iterator[tuple[str, int]]:
    """Yield the name and the length of every class and function of a module's text that is above the limits."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > (CLASS_LINES if isinstance(node, ast.ClassDef) else FUNCTION_LINES):
                yield node.name, length


def sizes(root: Path) -> Sizes:
    """Return the sizes of a checkout.

    Args:
        root: its folder.
    """
    code: Counter[str] = Counter()
    long: dict[str, int] = {}
    modules = [
        path for top in PRODUCT for path in sorted((root / top).rglob("*.py")) if GENERATED not in path.name
    ]
    for path in modules:
        source, place = path.read_text(encoding="utf-8"), path.relative_to(root)
        code["/".join(place.parts[: 2 if len(place.parts) > 2 else 1])] += code_lines(source)
        long.update({f"{place}:{name}": length for name, length in long_units(source)})
    tests = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in (root / "tests").rglob("*.py"))
    pages = [root / "README.md", *(root / "docs").rglob("*.md")]
    words = sum(len(_WORD.findall(path.read_text(encoding="utf-8"))) for path in pages)
    return Sizes(dict(code.most_common()), len(modules), tests, words, long)


def main() -> None:
    """Print the sizes of this checkout."""
    found = sizes(REPOSITORY)
    print(json.dumps({"lines_of_code": sum(found.code.values()), **asdict(found)}, indent=2))


if __name__ == "__main__":
    main()
