"""The code that a plan names: found in the workspace only, digested with its neighbours, run in one place."""

import hashlib
import importlib.util
import py_compile
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedfair.errors import PlanError
from fedfair.plan.module_code import code_digests, freeze, load_callable


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """Give a workspace, and forget what was imported from it."""
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def write(root: Path, path: str, text: str = "") -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def test_what_could_be_loaded_is_digested_and_other_files_are_not(root: Path) -> None:
    write(root, "src/model.py")
    loaded = {"src/helper.pyc", "src/fast.so", "src/start.safetensors", "src/deep/table.json"}
    for path in (*loaded, "src/__pycache__/model.cpython-311.pyc", "src/.model.py.swp", "src/.cache/x.py"):
        write(root, path)
    assert set(code_digests(["model:build"], root)) == {"src/model.py", *loaded}
    for path in ("model.py", "fast.so", "helper.pyc", "patients.csv", "collaborator.yaml"):
        write(root / "own", path)
    assert set(code_digests(["model:build"], root / "own")) == {"model.py", "fast.so", "helper.pyc"}
    assert code_digests([], root) == {}


def test_modules_and_packages_are_digested_with_their_neighbours(root: Path) -> None:
    write(root, "src/model.py", "def build(schema): ...\n")
    write(root, "src/helper.py", "X = 1\n")
    write(root, "src/deep/__init__.py")
    write(root, "elsewhere.py")
    digests = code_digests(["model:build"], root)
    assert set(digests) == {"src/model.py", "src/helper.py", "src/deep/__init__.py"}
    assert digests["src/helper.py"] == hashlib.sha256(b"X = 1\n").digest()
    assert code_digests(["src.model:build", "model:build"], root) == digests
    write(root, "src/helper.py", "X = 2\n")
    after = code_digests(["model:build"], root)
    assert {name for name in digests if digests[name] != after[name]} == {"src/helper.py"}
    package = root / "package"
    for path in ("mine/__init__.py", "mine/sub/model.py", "beside.py", "other/unrelated.py"):
        write(package, path)
    found = set(code_digests(["mine.sub.model:build"], package))
    assert found == {"mine/__init__.py", "mine/sub/model.py", "beside.py"}


@pytest.mark.parametrize(
    ("reference", "text", "expected"),
    [
        ("fedfair_test_none:build", None, "there is no module 'fedfair_test_none' under"),
        ("fedfair_test_a:build", "def bild(): ...\n", "has no function 'build'"),
        ("fedfair_test_b:build", "build = 3\n", "has no function 'build'"),
        ("fedfair_test_c:build", "1 / 0\n", "fails while it is imported: ZeroDivisionError: division by zero"),
        ("fedfair_test_d:build", "def (\n", "fails while it is imported: SyntaxError"),
        ("fedfair_test_e:build", "raise SystemExit(0)\n", "fails while it is imported: SystemExit"),
        ("fedfair_test_f:build", "import fedfair_not_there\n", "ModuleNotFoundError: No module named"),
        ("json:build", "def build(): ...\n", "has the name of another module that is in use: json"),
    ],
)
def test_unloadable_code_is_one_clear_error(root: Path, reference: str, text: str | None, expected: str) -> None:
    if text is not None:
        write(root, f"src/{reference.partition(':')[0]}.py", text)
    with pytest.raises(PlanError) as caught:
        load_callable(reference, root)
    assert expected in caught.value.message


def test_functions_are_loaded_with_their_neighbours_and_installed_modules_are_not(root: Path) -> None:
    write(root, "src/fedfair_test_model.py", "from fedfair_test_helper import X\n\ndef build():\n    return X\n")
    write(root, "src/fedfair_test_helper.py", "X = 41\n")
    path = list(sys.path)
    function = load_callable("fedfair_test_model:build", root)
    assert function() == 41
    assert load_callable("fedfair_test_model:build", root) is function
    assert sys.path == path
    with pytest.raises(PlanError, match="there is no module 'os'"):
        load_callable("os:system", root)
    with pytest.raises(PlanError, match="there is no module 'os'"):
        code_digests(["os:system"], root)


def frozen(root: Path, reference: str) -> Path:
    copy = root / "frozen"
    copy.mkdir()
    freeze([reference], root, copy)
    return copy


def test_what_is_frozen_has_the_digests_of_the_workspace_and_nothing_else_in_it(root: Path) -> None:
    for path in ("mine/__init__.py", "mine/model.py", "beside.py", "mine/table.json", "patients.csv", ".env"):
        write(root, path, path)
    write(root, "mine/__pycache__/model.cpython-311.pyc", "poison")
    copy = frozen(root, "mine.model:build")
    assert code_digests(["mine.model:build"], copy) == code_digests(["mine.model:build"], root)
    kept = {path.relative_to(copy).as_posix() for path in copy.rglob("*") if path.is_file()}
    assert kept == {"mine/__init__.py", "mine/model.py", "beside.py", "mine/table.json"}


def test_links_and_exchanged_files_run_as_they_were_frozen(root: Path) -> None:
    write(root, "src/fedfair_test_swapped.py", "def build():\n    return 'approved'\n")
    write(root, "evil.py", "def build():\n    return 'evil'\n")
    copy = frozen(root, "fedfair_test_swapped:build")
    source = root / "src/fedfair_test_swapped.py"
    source.unlink()
    source.symlink_to(root / "evil.py")
    assert load_callable("fedfair_test_swapped:build", copy)() == "approved"
    linked = root / "linked"
    write(linked, "elsewhere/real.py", "def build():\n    return 'approved'\n")
    link = linked / "src/fedfair_test_linked.py"
    link.parent.mkdir()
    link.symlink_to(linked / "elsewhere/real.py")
    copy = frozen(linked, "fedfair_test_linked:build")
    link.unlink()
    link.symlink_to(root / "evil.py")
    assert not (copy / "src/fedfair_test_linked.py").is_symlink()
    assert load_callable("fedfair_test_linked:build", copy)() == "approved"


def test_a_linked_folder_is_under_no_digest_and_cannot_be_imported(root: Path) -> None:
    write(root, "elsewhere/fedfair_test_far.py", "X = 1\n")
    write(root, "src/fedfair_test_near.py", "from fedfair_test_deep import fedfair_test_far\nbuild = print\n")
    (root / "src/fedfair_test_deep").symlink_to(root / "elsewhere")
    assert set(code_digests(["fedfair_test_near:build"], root)) == {"src/fedfair_test_near.py"}
    copy = frozen(root, "fedfair_test_near:build")
    with pytest.raises(PlanError, match="No module named 'fedfair_test_deep'"):
        load_callable("fedfair_test_near:build", copy)


def test_compiled_code_beside_a_source_is_not_taken_for_it_once_frozen(root: Path) -> None:
    write(root, "src/fedfair_test_cached.py", "def build():\n    return 'approved'\n")
    write(root, "evil.py", "def build():\n    return 'evil'\n")
    cache = importlib.util.cache_from_source(str(root / "src/fedfair_test_cached.py"))
    # A cache that is marked "unchecked" is believed whatever the source says.
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(root / "evil.py"), cfile=cache, doraise=True, invalidation_mode=mode)
    copy = frozen(root, "fedfair_test_cached:build")
    assert load_callable("fedfair_test_cached:build", copy)() == "approved"


def test_a_file_in_the_current_folder_without_digest_is_out(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(root, "src/fedfair_test_reaching.py", "import fedfair_test_stray\nbuild = print\n")
    write(root, "fedfair_test_stray.py", "X = 1\n")
    monkeypatch.chdir(root)
    monkeypatch.syspath_prepend("")  # What `python -m` does.
    with pytest.raises(PlanError, match="No module named 'fedfair_test_stray'"):
        load_callable("fedfair_test_reaching:build", root)
