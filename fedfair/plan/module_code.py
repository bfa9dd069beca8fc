"""The "module:function" of a plan: where its source is, what its digests are, and the function itself.

This is the one place where a name in a file becomes code. A module is looked for under the workspace's `src`, then
under the workspace itself, and nowhere else: not in what happens to be installed. A module may import its
neighbours and read files beside them, so every file that travels with it is part of what a site approves: all of
`src`, compiled modules and tables of weights included, or the modules beside the workspace's own and its package.
Only hidden files and Python's own caches are left out, as they are from an exported workspace. Installed libraries
are not approved: their versions are the site's business.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType

from fedfair.errors import PlanError

SOURCE_FOLDER = "src"
CACHE_FOLDER = "__pycache__"
IMPORTABLE = (".py", ".pyc", ".pyd", ".so")
"""Endings that Python can import from a folder, on any system: the digest must be the same on all of them."""

MAX_FILES = 1000

IN_MEMORY = "in_memory"
"""In place of a module: what is named was held by a program, and no file has it."""

_HELD: dict[str, tuple[object, Callable[..., object]]] = {}
"""What programs of this process hold, by its reference: the object itself, and what to call."""


def hold(owner: object, name: str, function: Callable[..., object]) -> str:
    """Return a reference by which plans of this process name a function that has no file.

    Args:
        owner: what the reference stands for: the same owner gets the same one.
        name: of the owner; any text.
        function: what `load_callable` returns for it.
    """
    known = next((reference for reference, (held, _) in _HELD.items() if held is owner), None)
    word = name if name.isidentifier() and name.isascii() else "held"
    reference = known or f"{IN_MEMORY}:{word}" + (f"_{len(_HELD)}" if f"{IN_MEMORY}:{word}" in _HELD else "")
    _HELD[reference] = (owner, function)
    return reference


def code_digests(references: Iterable[str], root: Path) -> dict[str, bytes]:
    """Return the SHA-256 of every file that the references may run.

    Args:
        references: texts of the form "module:function".
        root: the workspace.

    Returns:
        32 bytes by the file's path relative to the workspace, with forward slashes.

    Raises:
        PlanError: a module has no source in the workspace, or a file cannot be read.
    """
    return {path.relative_to(root).as_posix(): _file_digest(path) for path in _files(references, root)}


def freeze(references: Iterable[str], root: Path, folder: Path) -> None:
    """Copy every file that the references may run, as it is now, so that what is digested is what will run.

    What is imported from the copy cannot be exchanged between the look at its digest and the import: not by a new
    file, not by a link that is turned round, not by compiled code that Python keeps beside a source. Nothing is in
    the copy but what the digests are over, and every file of it is a plain one.

    Args:
        references: texts of the form "module:function".
        root: the workspace.
        folder: empty, and nobody else's.

    Raises:
        PlanError: a module has no source in the workspace, or a file cannot be read.
    """
    for path in _files(references, root):
        target = folder / path.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(_content(path))


def _files(references: Iterable[str], root: Path) -> list[Path]:
    files: set[Path] = set()
    for reference in (each for each in references if each not in _HELD):
        files.update(_neighbours(_locate(reference, root)[1], root))
    if len(files) > MAX_FILES:
        raise PlanError(
            f"{root} holds {len(files)} files beside the plan's modules, more than {MAX_FILES}",
            f"put the modules into a folder of their own under {SOURCE_FOLDER}/",
        )
    return sorted(files)


def load_callable(reference: str, root: Path) -> Callable[..., object]:
    """Return the function that a reference names.

    The caller has checked that the site allows and approved this code; from here on it runs.

    Args:
        reference: "module:function".
        root: the workspace.

    Raises:
        PlanError: there is no such module, it fails while it is imported, or has no such function.
    """
    if reference in _HELD:
        return _HELD[reference][1]
    base, source = _locate(reference, root)
    module_name, _, function_name = reference.partition(":")
    module = _imported(module_name, base, source)
    function: object = getattr(module, function_name, None)
    if not callable(function):
        known = ", ".join(name for name, value in vars(module).items() if callable(value) and name[0] != "_")
        raise PlanError(f"{source} has no function {function_name!r}", f"it has {known or 'none'}")
    return function


def _locate(reference: str, root: Path) -> tuple[Path, Path]:
    """Return the folder that a module's name starts from, and the module's file."""
    module = reference.partition(":")[0]
    parts = module.split(".")
    bases = (root / SOURCE_FOLDER, root)
    for base in bases:
        for path in (base.joinpath(*parts).with_suffix(".py"), base.joinpath(*parts, "__init__.py")):
            if path.is_file():
                return base, path
    raise PlanError(
        f"{reference}: there is no module {module!r} under {' or '.join(str(base) for base in bases)}",
        f"write it to {bases[0].joinpath(*parts).with_suffix('.py')}",
    )


def _neighbours(source: Path, root: Path) -> Iterator[Path]:
    top = source.relative_to(root).parts[0]
    found = [(root / top).rglob("*")]
    if top != SOURCE_FOLDER:
        found.append(path for path in root.iterdir() if path.suffix in IMPORTABLE)
    yield from (path for path in itertools.chain(*found) if path.is_file() and travels(path.relative_to(root)))


def travels(path: Path) -> bool:
    """Return whether a file of a workspace, by its path in it, is shared at all: no hidden file, no cache."""
    return not any(part.startswith(".") or part == CACHE_FOLDER for part in path.parts)


def _file_digest(path: Path) -> bytes:
    return hashlib.sha256(_content(path)).digest()


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise PlanError(f"{path} cannot be read: {error.strerror}") from error


def _imported(name: str, base: Path, source: Path) -> ModuleType:
    present = sys.modules.get(name)
    if present is not None and _is_from(present, source):
        return present
    top = sys.modules.get(name.partition(".")[0])
    if top is not None and not _is_under(top, base):
        raise PlanError(f"{source} has the name of another module that is in use: {name}", "rename it")
    try:
        with _only_path(base):
            module = importlib.import_module(name)
    except (Exception, SystemExit) as error:  # foreign code may raise anything; it becomes one clear fault
        raise PlanError(f"{source} fails while it is imported: {type(error).__name__}: {error}") from error
    if not _is_from(module, source):
        raise PlanError(f"{name} was found at {module.__file__}, not at {source}", "rename the module")
    return module


@contextlib.contextmanager
def _only_path(base: Path) -> Iterator[None]:
    """Let modules be found in `base` first, and not in the folder that this process happens to be in.

    Python puts that folder on the path of `python -m`; it often is the workspace, and what lies in it beside the
    plan's own modules is under no digest. One that fedfair itself is run from stays.
    """
    own = Path(__file__).resolve().parents[2]
    before, here = list(sys.path), Path.cwd().resolve()
    during = [str(base), *(entry for entry in before if Path(entry).resolve() != here or here == own)]
    sys.path[:] = during
    try:
        importlib.invalidate_caches()
        yield
    finally:
        # What the code itself has put on the path stays there.
        sys.path[:] = [*(entry for entry in sys.path if entry not in during), *before]


def _is_from(module: ModuleType, source: Path) -> bool:
    return module.__file__ is not None and Path(module.__file__).resolve() == source.resolve()


def _is_under(module: ModuleType, base: Path) -> bool:
    places = [module.__file__] if module.__file__ else list(getattr(module, "__path__", []))
    return any(Path(place).resolve().is_relative_to(base.resolve()) for place in places)
