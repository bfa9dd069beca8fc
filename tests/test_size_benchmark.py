"""What counts as a line of code, and which units are long."""

import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

SOURCE = '''"""A module
of two lines."""

# A remark.
CALL = max(
    1,  # one
    2,
)


def doubled(value: int) -> int:
    """Return it twice."""

    return 2 * value
'''


@pytest.fixture(autouse=True)
def _scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(REPOSITORY / "benchmarks"), *sys.path])


def test_a_line_of_code_is_no_remark_no_docstring_and_not_empty() -> None:
    from size import code_lines

    assert code_lines(SOURCE) == 4 + 2


def test_the_product_is_counted_by_package_and_its_long_units_by_place(tmp_path: Path) -> None:
    from size import CLASS_LINES, FUNCTION_LINES, sizes

    for folder in ("fedfair/rounds", "tests", "docs"):
        (tmp_path / folder).mkdir(parents=True)
    body = "".join(f"    value_{place} = {place}\n" for place in range(CLASS_LINES))
    (tmp_path / "fedfair" / "rounds" / "sums.py").write_text(f"class Sums:\n{body}\n\n{SOURCE}")
    steps = "".join(f"    step({place})\n" for place in range(FUNCTION_LINES))
    (tmp_path / "fedfair" / "steps.py").write_text(f"def run():\n{steps}")
    (tmp_path / "fedfair" / "wire_pb2.py").write_text("generated = 1\n")
    (tmp_path / "tests" / "test_sums.py").write_text("\n\nassert True\n")
    (tmp_path / "docs" / "page.md").write_text("# Two words\n\n| a | = |\n|---|---|\n")
    (tmp_path / "README.md").write_text("one\n")
    found = sizes(tmp_path)
    assert found.code == {"fedfair/rounds": CLASS_LINES + 7, "fedfair": FUNCTION_LINES + 1}
    assert (found.modules, found.tests, found.words) == (2, 3, 4)
    assert found.long == {
        "fedfair/rounds/sums.py:Sums": CLASS_LINES + 1,
        "fedfair/steps.py:run": FUNCTION_LINES + 1,
    }
