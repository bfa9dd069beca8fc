"""What MkDocs does beyond its configuration: the Python reference, pages of the root, and links out of `docs`.

The Python reference has one page for each package, derived from the tree, so no module is listed by hand. The
pages are read as GitHub reads them: a link that leaves `docs` becomes the path of a file, which must exist.
"""

from __future__ import annotations

import ast
import gc
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from supply import licences

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGES = ("fedfair", "aggregator", "collaborator")
GENERATED = {"fedfair.wire.v1"}
"""Packages whose code is made from another file, which is what people read."""

REFERENCE = "reference/python"
FROM_THE_ROOT = {"CHANGELOG.md": "develop/changelog.md", "SECURITY.md": "explain/security-policy.md"}
"""Files of the root that are pages of the site, and where they are there."""

LICENCES = "develop/licences.md"
"""The page of the licences of what is installed, made from `supply/licences.json`."""

NOTEBOOKS = "notebooks"
"""The folder of `docs` whose notebooks become pages, with what they printed when they were run last."""

_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)#\s]+)(#[^)\s]*)?\)")
_OPENS_BLOCK = re.compile(r"( {0,3}([-*]|\d+\.) |\||> )")
_COMMENT = re.compile(r"<!-- .* -->")


def on_startup(command: str, **_: object) -> None:
    """Turn the collector of garbage off for a build, of whose time it takes a tenth."""
    if command == "build":
        gc.disable()


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the packages where the navigation names the folder of the Python reference."""
    pages = [{name: f"{REFERENCE}/{name}.md"} for name, _ in packages()]
    config.nav = _filled(config.nav, [f"{REFERENCE}/index.md", *pages])
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made here."""
    for name, modules in packages():
        files.append(File.generated(config, f"{REFERENCE}/{name}.md", content=_reference(name, modules)))
    files.append(File.generated(config, f"{REFERENCE}/index.md", content=_index()))
    for notebook in sorted((REPOSITORY / "docs" / NOTEBOOKS).glob("*.ipynb")):
        page = f"{NOTEBOOKS}/{notebook.stem}.md"
        files.append(File.generated(config, page, content=notebook_page(notebook)))
    files.append(File.generated(config, LICENCES, content=licences.page()))
    for source, page in FROM_THE_ROOT.items():
        text = (REPOSITORY / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=_LINK.sub(_from_the_root, text)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Read a page as GitHub does: links to files outside `docs`, and lists without an empty line before them."""
    folder = REPOSITORY / "docs" / Path(page.file.src_uri).parent

    def kept(match: re.Match[str]) -> str:
        text, target = match[1], match[2]
        if "://" in target:
            return match[0]
        path = (folder / target).resolve()
        if path.is_relative_to(REPOSITORY / "docs"):
            return match[0]
        if not path.is_relative_to(REPOSITORY) or not path.exists():
            raise PluginError(f"docs/{page.file.src_uri} links to {target}, which is no file of the repository")
        name = path.relative_to(REPOSITORY).as_posix()
        if name in FROM_THE_ROOT:
            return (
                f"[{text}]({os.path.relpath(FROM_THE_ROOT[name], Path(page.file.src_uri).parent)}{match[3] or ''})"
            )
        return f"`{name}`" if text.strip("`/") == name else f"{text} (`{name}`)"

    return _LINK.sub(kept, "\n".join(_spaced(markdown.split("\n"))))


def notebook_page(path: Path) -> str:
    """Return a notebook as a page: its texts, its code, and what the code printed or drew.

    Args:
        path: the notebook, `.ipynb`; links between notebooks become links between their pages.
    """
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    parts = [part for cell in cells for part in _cell_parts(cell)]
    title, *rest = parts[0].split("\n", 1)
    text = "\n\n".join((title, *(line.strip("\n") for line in rest), *parts[1:]))
    linked = re.sub(r"\]\(([\w-]+)\.ipynb\)", r"](\1.md)", text)
    return linked.replace("\n\n", f"\n\n[Download this notebook]({path.name})\n\n", 1) + "\n"


def _cell_parts(cell: Mapping[str, Any]) -> Iterator[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"```{'bash' if source.startswith('%%bash') else 'python'}\n{source}\n```"
    for output in cell["outputs"]:
        drawn = "".join(output.get("data", {}).get("text/html", ""))
        if "<svg" in drawn:
            yield " ".join(drawn.split())  # an empty line would end the HTML
            continue
        printed = "".join(output.get("text") or output.get("data", {}).get("text/plain") or "")
        if printed.strip():
            yield f"```text\n{printed.rstrip()}\n```"


def packages() -> list[tuple[str, list[str]]]:
    """Return every package with the public modules that it holds itself, both by dotted names."""
    found = []
    for top in PACKAGES:
        for folder in sorted((REPOSITORY / top).rglob("__init__.py")):
            name = ".".join(folder.parent.relative_to(REPOSITORY).parts)
            if name not in GENERATED:
                modules = sorted(path.stem for path in folder.parent.glob("*.py") if not path.stem.startswith("_"))
                found.append((name, [f"{name}.{module}" for module in modules]))
    return sorted(found, key=lambda entry: (PACKAGES.index(entry[0].split(".")[0]), entry[0]))


def _from_the_root(match: re.Match[str]) -> str:
    """Return a link of a file of the root as its page, one folder below `docs`, has it."""
    target = match[2]
    if "://" in target:
        return match[0]
    place = f"../{target.removeprefix('docs/')}" if target.startswith("docs/") else f"../../{target}"
    return f"[{match[1]}]({place}{match[3] or ''})"


BELOW_OTHERS = "---\nsearch:\n  boost: 0.1\n---\n\n"
"""Words at the head of a page that the search shows after others."""


def _reference(name: str, modules: list[str]) -> str:
    asked = "\n\n".join(f"::: {module}" for module in modules)
    # Else a search for a word of a task would find the names of modules before the page about the task.
    return f"{BELOW_OTHERS}# {name}\n\n{_docstring(name)}\n\n{asked}\n"


def _index() -> str:
    rows = [f"| [{name}]({name}.md) | {_docstring(name).splitlines()[0]} |" for name, _ in packages()]
    return "\n".join(
        (
            "# Python reference",
            "",
            "One page for each package, made from the docstrings. Names that begin with `_` are left out.",
            "These are the insides of the product, and may move in any version. Programs rely on the",
            "[public API](../api.md) alone.",
            "",
            "| package | what it is |",
            "|---|---|",
            *rows,
            "",
        )
    )


def _docstring(package: str) -> str:
    source = REPOSITORY.joinpath(*package.split("."), "__init__.py").read_text(encoding="utf-8")
    return ast.get_docstring(ast.parse(source)) or ""


def _filled(nav: object, pages: list[object]) -> list[object]:
    """Return the navigation with the folder of the Python reference replaced by its pages."""
    if not isinstance(nav, list):
        raise PluginError("mkdocs.yml needs a nav that is a list")
    filled: list[object] = []
    for entry in nav:
        if isinstance(entry, dict):
            ((title, below),) = entry.items()
            if below == f"{REFERENCE}/":
                filled.append({title: pages})
                continue
            filled.append({title: _filled(below, pages) if isinstance(below, list) else below})
        else:
            filled.append(entry)
    return filled


def _spaced(lines: list[str]) -> Iterator[str]:
    """Yield the lines with an empty one wherever a list, a table or a quotation follows a paragraph directly."""
    fenced, before = False, ""
    for line in lines:
        opens = not fenced and _OPENS_BLOCK.match(line) is not None
        if opens and before and not before.startswith(" ") and not _OPENS_BLOCK.match(before):
            yield ""
        fenced ^= line.startswith("```")
        yield line
        if _COMMENT.fullmatch(line) and not fenced:
            yield ""
            before = ""
            continue
        before = line
