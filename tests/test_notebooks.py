"""The notebooks: each runs from its first cell to its last in an empty folder, and is a page of the site."""

import json
import os
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from docs.hooks import notebook_page
from tests.conftest import REPOSITORY
from tests.fork_server import commands, stand_in
from tests.patience import PATIENCE

NOTEBOOKS = sorted((REPOSITORY / "docs" / "notebooks").glob("*.ipynb"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # those of the kernel's own libraries
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_its_first_cell_to_its_last(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PATH", commands(tmp_path / "work")["PATH"])
    monkeypatch.setenv("PYTHONPATH", f"{REPOSITORY}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    # A kernel is a fork, as it would import everything once more.
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    kernel = {"argv": [str(stand_in(tmp_path)), "-m", "ipykernel_launcher", "-f", "{connection_file}"]}
    (tmp_path / "kernels" / "fork").mkdir(parents=True)
    (tmp_path / "kernels" / "fork" / "kernel.json").write_text(json.dumps({**kernel, "display_name": "fork"}))
    (tmp_path / "work").mkdir()
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    client = NotebookClient(
        notebook, timeout=PATIENCE, kernel_name="fork", resources={"metadata": {"path": str(tmp_path / "work")}}
    )
    # A cell that fails raises here, with its own traceback.
    client.execute()
    assert all(cell.execution_count for cell in notebook.cells if cell.cell_type == "code")


def test_there_are_three_and_the_site_names_each() -> None:
    navigation = (REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8")
    assert len(NOTEBOOKS) == 3
    assert [path.stem for path in NOTEBOOKS if f"notebooks/{path.stem}.md" not in navigation] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_with_what_it_printed_and_nothing_of_a_machine(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    notebook = nbformat.reads(text, as_version=4)
    assert any(cell.outputs for cell in notebook.cells if cell.cell_type == "code")
    assert [word for word in ("ipykernel_", "/root", "/home/", "Traceback", "\\u001b") if word in text] == []


def test_a_page_of_a_notebook_has_its_texts_its_code_and_what_it_printed(tmp_path: Path) -> None:
    cells = [
        nbformat.v4.new_markdown_cell("# A title\nNext: [more](other-one.ipynb)."),
        nbformat.v4.new_code_cell(
            "1 + 1", outputs=[nbformat.v4.new_output("execute_result", {"text/plain": "2"})]
        ),
        nbformat.v4.new_code_cell("print()", outputs=[nbformat.v4.new_output("stream", text="\n")]),
        nbformat.v4.new_code_cell(
            "outcome",
            outputs=[
                nbformat.v4.new_output(
                    "execute_result", {"text/plain": "<outcome>", "text/html": "<p>\n\n<svg></svg></p>"}
                )
            ],
        ),
    ]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "one.ipynb")
    assert notebook_page(tmp_path / "one.ipynb") == (
        "# A title\n\n[Download this notebook](one.ipynb)\n\nNext: [more](other-one.md).\n\n"
        "```python\n1 + 1\n```\n\n```text\n2\n```\n\n```python\nprint()\n```\n\n"
        "```python\noutcome\n```\n\n<p> <svg></svg></p>\n"
    )
