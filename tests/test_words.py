"""The words of the product, held against its own tree: no place that has moved is named, and no private word."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.conftest import REPOSITORY

FOLDERS = ("fedfair", "aggregator", "collaborator")
PRODUCT = sorted(
    path for package in FOLDERS for path in (REPOSITORY / package).rglob("*.py") if "v1" not in path.parts
)
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]

PRIVATE = re.compile(
    r"\b(telephone|foresees?|leaves? (it |`--yes` )?away|declin(e|es|ed|ing)|reluctan\w+|inbox|in vain"
    r"|row of sums|written anew|asks nothing twice|(stop(s|ped)?|end(s|ed)) in order|by whomever)\b"
    r"|(?<!of )\bcourse\b|\bjudged? (a|the) (saved )?model\b",
    re.IGNORECASE,
)
"""A private vocabulary; the field has a word for each: omit, refuse, withdraw, training run"""

CITED = re.compile(r"`(?:[a-z_]+\.)*([a-z_]+)\.([A-Za-z_]+)`")
FILE = re.compile(r"`(?:[a-z_]+/)*([a-z]\w+\.py)`")
ABROAD = {"grpc.aio", "subprocess", "aio", "nn"}
"""Modules of other projects whose classes a sentence may name."""


def _prose(path: Path) -> Iterator[tuple[str, str]]:
    """Yield every docstring, comment and text of a module with its place; names in code are no prose."""
    source = path.read_text(encoding="utf-8")
    where = path.relative_to(REPOSITORY)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield f"{where}:{token.start[0]}", token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield f"{where}:{node.lineno}", node.value


def test_no_sentence_of_the_product_or_its_pages_has_a_private_word() -> None:
    texts = [found for path in PRODUCT for found in _prose(path)]
    texts += [(path.name, path.read_text(encoding="utf-8")) for path in PAGES]
    assert {f"{place}: {word[0]}" for place, text in texts for word in PRIVATE.finditer(text)} == set()


def test_prose_names_only_modules_that_exist_and_only_what_is_in_them() -> None:
    sources: defaultdict[str, str] = defaultdict(str)
    for path in PRODUCT:
        sources[path.parent.name if path.stem == "__init__" else path.stem] += path.read_text(encoding="utf-8")
    files = {path.name for folder in (*FOLDERS, "benchmarks") for path in (REPOSITORY / folder).rglob("*.py")}
    wrong: set[str] = set()
    for path in PRODUCT:
        for place, text in _prose(path):
            wrong |= {f"{place}: {name}" for name in FILE.findall(text) if name not in files}
            for module, name in CITED.findall(text):
                is_class = name[0].isupper() and module not in ABROAD
                if is_class and not re.search(rf"\b{name}\b", sources.get(module, "")):
                    wrong.add(f"{place}: {module}.{name}")
    assert wrong == set()
