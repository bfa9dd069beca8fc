"""The examples of the public API: every code block of its page and every docstring runs as it stands."""

import doctest
import importlib.util
import re
from pathlib import Path

import pytest

import fedfair
from tests.conftest import REPOSITORY
from tests.fork_server import played

PAGE = (REPOSITORY / "docs" / "how-to" / "python.md").read_text(encoding="utf-8")
SECTION = re.compile(r"^#{2,3} (.+)$", re.MULTILINE)
FENCE = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
EXAMPLES = {
    title: "\n".join(FENCE.findall(text))
    for title, text in zip(*[iter(SECTION.split(PAGE)[1:])] * 2, strict=True)
    if FENCE.findall(text)
}
"""The code of each section of the page; its blocks follow each other in one program."""

NEEDS = {"Lightning": ("lightning",), "Hugging Face Trainer": ("transformers", "accelerate")}


@pytest.mark.slow
@pytest.mark.parametrize("title", EXAMPLES)
def test_the_code_of_a_section_runs(title: str, tmp_path: Path) -> None:
    for package in NEEDS.get(title, ()):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed; no part of fedfair needs it")
    script = tmp_path / "example.py"
    script.write_text(EXAMPLES[title], encoding="utf-8")
    ran = played([str(script)], tmp_path, {"HF_HUB_OFFLINE": "1"})
    assert ran.returncode == 0, ran.stdout


DOCUMENTED = [name for name in fedfair.__all__ if ">>>" in (getattr(fedfair, name).__doc__ or "")]


@pytest.mark.parametrize("name", DOCUMENTED)
def test_the_example_of_a_docstring_gives_what_it_says(name: str) -> None:
    found = doctest.DocTestFinder(recurse=False).find(getattr(fedfair, name), name, globs={})
    results = [doctest.DocTestRunner().run(example) for example in found]
    assert sum(result.attempted for result in results) > 1
    assert sum(result.failed for result in results) == 0


def test_every_way_in_has_examples_on_the_page_and_in_its_docstring() -> None:
    code = "\n".join(EXAMPLES.values())
    assert {name for name in ("simulate", "load_model", "FairClassifier", "FairRegressor", "RCVaRLoss")
            if f"fedfair.{name}(" not in code} == set()  # fmt: skip
    assert set(NEEDS) < set(EXAMPLES)
    assert {"simulate", "FairClassifier", "FairRegressor", "RCVaRLoss", "worst_group_risk"} <= set(DOCUMENTED)
    listed = re.findall(r"^::: \S+\.(\w+)$", (REPOSITORY / "docs/reference/api.md").read_text(), re.MULTILINE)
    # The plan has a reference of its own, and the version is a text.
    assert sorted([*listed, "Plan", "__version__"]) == sorted(fedfair.__all__)
