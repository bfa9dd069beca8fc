"""How a feature is added: the lists of the architecture name what there is, and only a table names a room."""

import ast
import re
from collections.abc import Iterator

import pytest

from fedfair.statistics.table import Purpose, room_of
from fedfair.terms.table import TERMS
from tests.conftest import REPOSITORY
from tests.trees import nodes

PAGE = REPOSITORY / "docs" / "develop" / "architecture.md"
NAMED = re.compile(r"^\d\. `([^`]+)`", re.MULTILINE)
ROOMS = ("terms", "statistics")

OF_ALL = {
    "a term": {"fedfair/plan/sections.py", "fedfair/terms/table.py"},
    "a statistic": {"fedfair/statistics/table.py", "proto/fedfair/v1/federation.proto"},
    "a status field": set[str](),
    "a data source": set[str](),
}
"""The files that a feature shares with others of its kind: a key, a row or a number in each."""

FEWEST = {"a term": 4, "a statistic": 5, "a status field": 3, "a data source": 3}
"""How many files a feature has at most for itself, its test among them."""

EXCEPTIONS = {
    "fedfair/simulation/vectorised/clients.py": "computes the batched form of each term amid its own tensors"
}
"""Who names a room beside the table and the room itself, and why."""


def listed(feature: str) -> list[str]:
    """Return the files of a recipe, in its order."""
    found = re.search(
        rf"^### \.\.\. {feature}\b.*?(?=^### )", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    assert found is not None
    return NAMED.findall(found.group())


def rooms(kind: str) -> set[str]:
    return {path.parent.name for path in (REPOSITORY / "fedfair" / kind).glob("*/__init__.py")}


def importers(kind: str) -> Iterator[tuple[str, str]]:
    """Yield which module imports which room."""
    for place, node in nodes(ast.ImportFrom):
        if (node.module or "").startswith(f"fedfair.{kind}"):
            *_, last = (node.module or "").split(".")[:3]
            named = {last, *(alias.name for alias in node.names)} & rooms(kind)
            yield from ((place, room) for room in named)


@pytest.mark.parametrize("feature", OF_ALL)
def test_every_file_of_a_recipe_exists_and_few_are_for_the_feature_alone(feature: str) -> None:
    files = listed(feature)
    kind = {"a term": "terms", "a statistic": "statistics"}.get(feature)
    for name in files:
        places = [name.replace("NAME", room) for room in rooms(kind)] if kind else [name]
        assert any((REPOSITORY / place).exists() for place in places), name
    own = [name for name in files if name not in OF_ALL[feature]]
    assert len(own) <= FEWEST[feature]
    assert len(files) - len(own) == len(OF_ALL[feature])


def test_every_term_has_its_row_and_a_part_at_sites_where_the_row_says_so() -> None:
    at_sites = {path.parent.name for path in (REPOSITORY / "fedfair" / "terms").glob("*/site.py")}
    assert {term.name for term in TERMS} == rooms("terms")
    assert {term.name for term in TERMS if term.at_sites} == at_sites


def test_every_statistic_has_its_row_and_every_file_of_its_recipe() -> None:
    assert {room_of(purpose).split(".")[-1] for purpose in Purpose} == rooms("statistics")
    for room in rooms("statistics"):
        named = [name for name in listed("a statistic") if "NAME" in name]
        assert len(named) == 4
        assert all((REPOSITORY / name.replace("NAME", room)).exists() for name in named)


@pytest.mark.parametrize("kind", ROOMS)
def test_nobody_but_the_table_and_the_room_itself_names_a_room(kind: str) -> None:
    found = {
        place
        for place, room in importers(kind)
        if place != f"fedfair/{kind}/table.py" and not place.startswith(f"fedfair/{kind}/{room}/")
    }
    assert found == (EXCEPTIONS.keys() if kind == "terms" else set())
