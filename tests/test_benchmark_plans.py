"""The plans that benchmarks write: what they measure does not change with a default of the product."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.conftest import REPOSITORY

FILES = sorted((REPOSITORY / "benchmarks").glob("*.py"))


def objectives(file: Path) -> Iterator[set[object]]:
    """Yield the keys of every objective that stands in a file as a literal with a smoothing."""
    for node in ast.walk(ast.parse(file.read_text())):
        if not isinstance(node, ast.Dict):
            continue
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and key.value == "objective" and isinstance(value, ast.Dict):
                keys = {one.value for one in value.keys if isinstance(one, ast.Constant)}
                if "smoothing" in keys:
                    yield keys


def test_a_plan_of_a_benchmark_states_its_measure() -> None:
    found = {file.name: keys for file in FILES for keys in objectives(file)}
    assert len(found) > 5
    # What `defaults.py` measures is the defaults: it lays its own measure over these keys.
    assert [name for name, keys in found.items() if "measure" not in keys] == ["defaults.py"]
