"""`import fedfair`: the frozen list of names, what it loads, and that pages and examples use nothing else."""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import fedfair
from tests.conftest import REPOSITORY
from tests.patience import PATIENCE

PUBLIC = [
    "FairClassifier", "FairRegressor", "FedfairError", "ModelComparison", "ObjectiveAdvice", "Plan", "RCVaRLoss",
    "SavedModel", "SimulatedFederation", "UntrainedModelWarning", "VerifiedCertificate",
    "VerifiedPassport", "WorstGroupWarning", "__version__", "advise", "load_model", "load_plan", "simulate",
    "verify_certificate", "verify_passport", "worst_group_risk",
]  # fmt: skip
"""The promise to users: a name may be added here, and none removed without a new major version."""

FENCE = re.compile(r"^```(?:python|pycon|py)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_is_there_and_says_what_it_is(name: str) -> None:
    found = getattr(fedfair, name)
    assert getattr(fedfair, name) is found
    assert name == "__version__" or found.__doc__


def test_public_names_are_frozen_loaded_and_known_to_type_checkers() -> None:
    assert fedfair.__all__ == PUBLIC
    assert dir(fedfair) == PUBLIC
    tree = ast.parse((REPOSITORY / "fedfair" / "__init__.py").read_text(encoding="utf-8"))
    checked = next(node for node in tree.body if isinstance(node, ast.If))
    typed = {
        alias.name: node.module
        for node in checked.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert typed == fedfair._PLACES
    assert {*typed, "__version__"} == set(PUBLIC)
    with pytest.raises(AttributeError, match="no attribute 'simulte'; it has FairClassifier"):
        _ = fedfair.simulte  # type: ignore[attr-defined]


def test_the_import_loads_no_library() -> None:
    code = "import sys; before = set(sys.modules); import fedfair; fedfair.__all__; print(sorted(sys.modules))"
    ran = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=REPOSITORY, timeout=PATIENCE
    )
    loaded = {name.split(".")[0] for name in ast.literal_eval(ran.stdout)}
    assert "fedfair" in loaded
    own = {name for name in loaded if name not in sys.stdlib_module_names and not name.startswith("_")}
    # A path file of an environment may load its own finder; nothing that takes time.
    assert own - {"fedfair", "distutils-precedence", "sitecustomize", "usercustomize"} == set()


def test_a_name_whose_library_is_missing_says_what_to_install() -> None:
    code = "import sys; sys.modules['torch'] = None; import fedfair; fedfair.RCVaRLoss"
    ran = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, cwd=REPOSITORY, timeout=PATIENCE
    )
    assert "ImportError: fedfair.RCVaRLoss: this needs torch, which is not installed: pip install" in ran.stderr


def _used(source: str) -> Iterator[str]:
    """Yield what a piece of code takes from fedfair, by dotted names."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "fedfair")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "fedfair":
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "fedfair":
            yield f"fedfair.{node.attr}"


def _without_prompts(code: str) -> str:
    lines = code.splitlines()
    if not any(line.startswith(">>> ") for line in lines):
        return code
    return "\n".join(line[4:] for line in lines if line.startswith((">>> ", "... ")))


ALLOWED = {"fedfair", *(f"fedfair.{name}" for name in PUBLIC)}
SECAGG_DEMO = REPOSITORY / "examples" / "secagg_demo"
"""Plays the protocol step by step, and is part of the product: `fedfair demo secagg`."""


def _pages() -> list[Path]:
    pages = [
        REPOSITORY / "README.md", *(REPOSITORY / "docs").rglob("*.md"), *(REPOSITORY / "examples").rglob("*.md"),
    ]  # fmt: skip
    return sorted(pages)


def _notebook_code() -> Iterator[tuple[str, str]]:
    for path in sorted((REPOSITORY / "docs" / "notebooks").glob("*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            source = "".join(cell["source"])
            if cell["cell_type"] == "code" and not source.startswith("%%"):
                yield path.name, "\n".join(line for line in source.split("\n") if not line.startswith("!"))


def test_packages_and_pages_name_what_is_public() -> None:
    roots = [REPOSITORY / name for name in ("fedfair", "aggregator", "collaborator")]
    packages = [folder / "__init__.py" for root in roots for folder in (root, *root.iterdir())]
    said = {
        str(path.parent.relative_to(REPOSITORY)): ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
        for path in packages
        if path.exists()
    }
    assert "the public Python API" in (said.pop("fedfair") or "")
    # A package inside one of these is as private as that is.
    assert [name for name, words in said.items() if "No public names." not in (words or "")] == []
    found = {(place, name) for place, code in _notebook_code() for name in _used(code) if name not in ALLOWED}
    for path in _pages():
        for code in FENCE.findall(path.read_text(encoding="utf-8")):
            found |= {(path.name, name) for name in _used(_without_prompts(code)) if name not in ALLOWED}
    for path in sorted((REPOSITORY / "examples").rglob("*.py")):
        if not path.is_relative_to(SECAGG_DEMO):
            names = _used(path.read_text(encoding="utf-8"))
            found |= {(str(path.relative_to(REPOSITORY)), name) for name in names if name not in ALLOWED}
    assert found == set()


@pytest.mark.parametrize(
    ("code", "private"),
    [
        ("from fedfair.plan.schema import Plan", {"fedfair.plan.schema.Plan"}),
        ("import fedfair.training", {"fedfair.training"}),
        ("import fedfair\nfedfair.simulation.simulate", {"fedfair.simulation"}),
        ("import fedfair\nfedfair.simulate({})", set()),
        (">>> from fedfair import simulate\n>>> simulate", set()),
    ],
)
def test_a_private_name_is_found_in_code(code: str, private: set[str]) -> None:
    assert {name for name in _used(_without_prompts(code)) if name not in ALLOWED} == private
