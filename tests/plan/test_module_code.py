"""The code that a plan names: found in the workspace only, digested with its neighbours, run in one place."""

from __future__ import annotations

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


def test_the_module_and_all_its_neighbours_are_digested(root: Path) -> None:
    write(root, "src/model.py", "def build(schema): ...\n")
    write(root, "src/helper.py", "X = 1\n")
    write(root, "src/deep/__init__.py")
    write(root, "elsewhere.py")
    digests = code_digests(["model:build"], root)
    assert set(digests) == {"src/model.py", "src/helper.py", "src/deep/__init__.py"}
    assert digests["src/helper.py"] == hashlib.sha256(b"X = 1\n").digest()
    assert code_digests(["src.model:build", "model:build"], root) == digests


def test_a_package_beside_the_plan_is_digested_with_the_files_beside_it(root: Path) -> None:
    write(root, "mine/__init__.py")
    write(root, "mine/sub/model.py")
    write(root, "beside.py")
    write(root, "other/unrelated.py")
    assert set(code_digests(["mine.sub.model:build"], root)) == {
        "mine/__init__.py",
        "mine/sub/model.py",
        "beside.py",
    }


def test_what_a_module_could_load_without_being_python_source_is_digested_too(root: Path) -> None:
    write(root, "src/model.py")
    loaded = {"src/helper.pyc", "src/fast.so", "src/start.safetensors", "src/deep/table.json"}
    for path in (*loaded, "src/__pycache__/model.cpython-311.pyc", "src/.model.py.swp", "src/.cache/x.py"):
        write(root, path)
    assert set(code_digests(["model:build"], root)) == {"src/model.py", *loaded}


def test_compiled_modules_beside_the_workspaces_own_are_digested_and_its_other_files_are_not(root: Path) -> None:
    for path in ("model.py", "fast.so", "helper.pyc", "patients.csv", "collaborator.yaml"):
        write(root, path)
    assert set(code_digests(["model:build"], root)) == {"model.py", "fast.so", "helper.pyc"}


def test_no_reference_needs_no_code(root: Path) -> None:
    assert code_digests([], root) == {}


def test_a_change_of_a_neighbour_changes_its_digest(root: Path) -> None:
    write(root, "src/model.py")
    write(root, "src/helper.py", "X = 1\n")
    before = code_digests(["model:build"], root)
    write(root, "src/helper.py", "X = 2\n")
    after = code_digests(["model:build"], root)
    assert {name for name in before if before[name] != after[name]} == {"src/helper.py"}


def test_a_function_is_loaded_with_its_neighbours(root: Path) -> None:
    write(root, "src/fedfair_test_model.py", "from fedfair_test_helper import X\n\ndef build():\n    return X\n")
    write(root, "src/fedfair_test_helper.py", "X = 41\n")
    path = list(sys.path)
    function = load_callable("fedfair_test_model:build", root)
    assert function() == 41
    assert load_callable("fedfair_test_model:build", root) is function
    assert sys.path == path


@pytest.mark.parametrize(
    ("reference", "text", "expected"),
    [
        ("fedfair_test_none:build", None, "there is no module 'fedfair_test_none' under"),
        ("fedfair_test_a:build", "def bild(): ...\n", "has no function 'build'"),
        ("fedfair_test_b:build", "build = 3\n", "has no function 'build'"),
        ("fedfair_test_c:build", "1 / 0\n", "fails while it is imported: ZeroDivisionError: division by zero"),
        ("fedfair_test_d:build", "def (\n", "fails while it is imported: SyntaxError"),
        ("fedfair_test_e:build", "raise SystemExit(0)\n", "fails while it is imported: SystemExit"),
        (
            "fedfair_test_f:build",
            "import fedfair_not_there\n",
            "ModuleNotFoundError: No module named 'fedfair_not",
        ),
        ("json:build", "def build(): ...\n", "has the name of another module that is in use: json"),
    ],
)
def test_code_that_cannot_be_loaded_is_one_clear_error(
    root: Path, reference: str, text: str | None, expected: str
) -> None:
    if text is not None:
        write(root, f"src/{reference.partition(':')[0]}.py", text)
    with pytest.raises(PlanError) as caught:
        load_callable(reference, root)
    assert expected in caught.value.message


def test_an_installed_module_is_not_taken_for_the_workspaces_own(root: Path) -> None:
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


def test_code_that_is_exchanged_after_it_was_frozen_does_not_run(root: Path) -> None:
    write(root, "src/fedfair_test_swapped.py", "def build():\n    return 'approved'\n")
    write(root, "evil.py", "def build():\n    return 'evil'\n")
    copy = frozen(root, "fedfair_test_swapped:build")
    source = root / "src/fedfair_test_swapped.py"
    source.unlink()
    source.symlink_to(root / "evil.py")
    assert load_callable("fedfair_test_swapped:build", copy)() == "approved"


def test_a_link_is_frozen_as_the_file_that_it_led_to(root: Path) -> None:
    write(root, "elsewhere/real.py", "def build():\n    return 'approved'\n")
    write(root, "evil.py", "def build():\n    return 'evil'\n")
    link = root / "src/fedfair_test_linked.py"
    link.parent.mkdir()
    link.symlink_to(root / "elsewhere/real.py")
    copy = frozen(root, "fedfair_test_linked:build")
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


def test_a_file_in_the_current_folder_that_no_digest_covers_is_not_imported(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(root, "src/fedfair_test_reaching.py", "import fedfair_test_stray\nbuild = print\n")
    write(root, "fedfair_test_stray.py", "X = 1\n")
    monkeypatch.chdir(root)
    monkeypatch.syspath_prepend("")  # What `python -m` does.
    with pytest.raises(PlanError, match="No module named 'fedfair_test_stray'"):
        load_callable("fedfair_test_reaching:build", root)
