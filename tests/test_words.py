"""Prose, held against its own tree: no place that has moved is named, and no sentence of a page is too long."""

import re
from collections import defaultdict

import pytest

from tests.conftest import REPOSITORY

FOLDERS = ("fedfair", "aggregator", "collaborator")
PRODUCT = sorted(
    path for package in FOLDERS for path in (REPOSITORY / package).rglob("*.py") if "v1" not in path.parts
)
PAGES = [
    REPOSITORY / "README.md", REPOSITORY / "SECURITY.md",
    *sorted((REPOSITORY / "docs").rglob("*.md")), *sorted((REPOSITORY / "examples").rglob("*.md")),
]  # fmt: skip

MAX_WORDS = 30
"""Of a sentence in a page. Writers aim at 25; a name, a figure and a piece of code are one word each."""

NO_SENTENCE = re.compile(
    r"<!--.*?-->"
    r"|^```.*?^```$"
    r"|(?<=\n\n)(?: {4}[^\n]*\n)+"  # code that is indented
    r"|^(?:#|\||> )[^\n]*$",  # a heading, a row of a table, words that a program prints
    re.DOTALL | re.MULTILINE,
)

LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
ITEM = re.compile(r"\n\s*(?:[-*]|\d+\.)\s+|\n\s*\n")
END = re.compile(r"(?<=[.!?:;])\s+(?=[A-Z0-9'\"(*]|code)")

CITED = re.compile(r"`(?:[a-z_]+\.)*([a-z_]+)\.([A-Za-z_]+)`")
FILE = re.compile(r"`(?:[a-z_]+/)*([a-z]\w+\.py)`")
ABROAD = {"grpc.aio", "subprocess", "aio", "nn"}
"""Modules of other projects whose classes a sentence may name."""


def _long_sentences(page: str) -> list[str]:
    """Return the sentences of a page that have more than `MAX_WORDS` words, without code, tables and links."""
    prose = re.sub(r"`[^`]+`", "code", LINK.sub(r"\1", NO_SENTENCE.sub("", page)))
    sentences = (one for item in ITEM.split(prose) for one in END.split(" ".join(item.replace("**", "").split())))
    return [one for one in sentences if len(one.split()) > MAX_WORDS]


def test_no_sentence_of_a_page_is_longer_than_a_reader_can_hold() -> None:
    pages = {path.relative_to(REPOSITORY).as_posix(): path for path in PAGES}
    long = {name: _long_sentences(path.read_text(encoding="utf-8")) for name, path in pages.items()}
    assert {name: found for name, found in long.items() if found} == {}


@pytest.mark.parametrize("kind", ["{}.", "- {}.", "1. {}.", "**Bold.** {}.", "[{}](page.md).", "Two\n{}."])
def test_a_long_sentence_is_found_wherever_it_stands(kind: str) -> None:
    assert len(_long_sentences(f"# A page\n\n{kind.format('word ' * MAX_WORDS + 'more')}\n")) == 1


@pytest.mark.parametrize(
    "kind", ["```\n{}\n```", "Such as\n\n    {}\n    {}\n", "| {} |", "> {}", "`{}`", "<!-- {} -->", "# {}"]
)
def test_code_tables_and_quotations_are_no_sentences(kind: str) -> None:
    words = "word " * MAX_WORDS + "more"
    assert _long_sentences(f"# A page\n\n{kind.format(words, words)}\n\nAn end.\n") == []


def test_two_short_sentences_are_not_one_long_one() -> None:
    short = "Word" + " word" * (MAX_WORDS - 1)
    assert _long_sentences(f"{short}. {short}:\n\n- {short};\n- {short}.\n\n**{short}.** {short}.\n") == []


def test_prose_names_only_modules_that_exist_and_only_what_is_in_them() -> None:
    sources: defaultdict[str, str] = defaultdict(str)
    for path in PRODUCT:
        sources[path.parent.name if path.stem == "__init__" else path.stem] += path.read_text(encoding="utf-8")
    files = {path.name for folder in (*FOLDERS, "benchmarks") for path in (REPOSITORY / folder).rglob("*.py")}
    wrong: set[str] = set()
    for path in PRODUCT:
        place, text = path.relative_to(REPOSITORY), path.read_text(encoding="utf-8")
        wrong |= {f"{place}: {name}" for name in FILE.findall(text) if name not in files}
        for module, name in CITED.findall(text):
            is_class = name[0].isupper() and module not in ABROAD
            if is_class and not re.search(rf"\b{name}\b", sources.get(module, "")):
                wrong.add(f"{place}: {module}.{name}")
    assert wrong == set()


def test_every_benchmark_that_is_a_command_has_a_row_in_their_table() -> None:
    commands = [path.name for path in (REPOSITORY / "benchmarks").glob("*.py") if "__main__" in path.read_text()]
    told = (REPOSITORY / "benchmarks" / "README.md").read_text(encoding="utf-8")
    missing = {name for name in commands if not name.endswith("_side.py") and f"| `{name}` |" not in told}
    assert not missing
