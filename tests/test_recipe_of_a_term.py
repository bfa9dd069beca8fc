"""How a term is added: the list in the architecture names what there is, and nobody but the table names a room."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from fedfair.terms.table import TERMS
from tests.conftest import REPOSITORY
from tests.trees import trees

ROOMS = REPOSITORY / "fedfair" / "terms"
RECIPE = re.compile(r"^### \.\.\. a term.*?(?=^### )", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"^\d\. `([^`]+)`", re.MULTILINE)

MOST_FILES_OF_ITS_OWN = 4

EXCEPTIONS = {
    "fedfair/simulation/vectorised/clients.py": "computes the batched form of each term amid its own tensors",
}
"""Who names a room beside the table and the room itself, and why."""


def listed() -> list[str]:
    """Return the files of the recipe, in its order."""
    found = RECIPE.search((REPOSITORY / "docs" / "develop" / "architecture.md").read_text(encoding="utf-8"))
    assert found is not None
    return NAMED.findall(found.group())


def importers() -> Iterator[tuple[str, str]]:
    """Yield which module imports which room."""
    for package in ("fedfair", "aggregator", "collaborator"):
        for path, tree in trees(package).items():
            for node in ast.walk(tree):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fedfair.terms."):
                    room = (node.module or "").split(".")[2]
                    if (ROOMS / room).is_dir():
                        yield str(path.relative_to(REPOSITORY)), room


def test_every_file_of_the_recipe_exists() -> None:
    for name in listed():
        places = [name.replace("NAME", room.name) for room in ROOMS.iterdir() if room.is_dir()]
        assert any((REPOSITORY / place).exists() for place in places), name


def test_a_term_needs_few_files_of_its_own_and_one_row() -> None:
    own = [name for name in listed() if "NAME" in name or name.startswith("tests/")]
    assert len(own) <= MOST_FILES_OF_ITS_OWN
    assert [name for name in listed() if name not in own] == ["fedfair/plan/sections.py", "fedfair/terms/table.py"]


def test_every_room_has_its_row_and_a_part_at_sites_where_the_row_says_so() -> None:
    rooms = {path.parent.name for path in ROOMS.glob("*/__init__.py")}
    assert {term.name for term in TERMS} == rooms
    assert {term.name for term in TERMS if term.at_sites} == {path.parent.name for path in ROOMS.glob("*/site.py")}


def test_nobody_but_the_table_and_the_room_itself_names_a_room() -> None:
    found = {
        place
        for place, room in importers()
        if place != "fedfair/terms/table.py" and not place.startswith(f"fedfair/terms/{room}/")
    }
    assert found == EXCEPTIONS.keys()
