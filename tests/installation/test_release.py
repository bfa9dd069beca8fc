"""What a release is made of: the version in one place, and wheels that hold what they must and nothing else."""

import re
import tomllib
from pathlib import Path, PurePosixPath

import pytest

from fedfair.version import __version__
from supply.pins import DISTRIBUTION, ROOT
from supply.release import (
    changelog_fault,
    expected_files,
    release,
    sdist_contents,
    sdist_faults,
    tracked,
    wheel_contents,
    wheel_faults,
)

METADATA = f"{DISTRIBUTION}-1.0.dist-info/"
SOUND = {
    "fedfair/__init__.py": b"",
    f"{METADATA}METADATA": b"Name: fedsrcvar\nVersion: 1.0\n",
    f"{METADATA}entry_points.txt": b"",
    f"{METADATA}licenses/LICENSE": b"",
    f"{METADATA}licenses/fedfair/cli/heart/README.md": b"",
}
KEY = b"-----BEGIN PRIVATE " + b"KEY-----\n" + b"MC4CAQAwBQYDK2VwBCIEIHn" * 3


def test_the_version_is_stated_in_one_place() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" not in project["project"]
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "fedfair.version.__version__"}


def test_the_name_of_the_wheel_is_stated_once() -> None:
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["name"] == DISTRIBUTION
    assert DISTRIBUTION != "fedfair"  # another project has that name on the package index


BY_NAME = re.compile(r"pip3? +install(?! +--?)[^\n`|]*\bfed(?:fair|srcvar)\b|fedfair\[")


def test_nothing_tells_anybody_to_install_fedfair_by_a_name_from_the_package_index() -> None:
    assert BY_NAME.search("pip install 'fedfair[sql]'")
    assert BY_NAME.search("pip install fedfair")
    assert not BY_NAME.search("pip install --no-deps --no-build-isolation .")
    endings = {".md", ".py", ".ipynb", ".html", ".yaml", ".toml", ""}
    files = [path for path in tracked() if path.suffix in endings and path.parts[0] not in {"benchmarks", "tests"}]
    assert [str(path) for path in files if BY_NAME.search((ROOT / path).read_text(encoding="utf-8"))] == []


def test_a_wheel_has_the_files_of_the_tree_and_no_others() -> None:
    files = [
        PurePosixPath(one) for one in ("fedfair/a.py", "tests/b.py", "examples/secagg_demo/c.py", "fedfair/d.csv")
    ]
    assert expected_files(files) == {"fedfair/a.py", "secagg_demo/c.py"}
    assert wheel_faults(SOUND, {"fedfair/__init__.py"}, "1.0") == []


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"tests/test_a.py": b""}, "tests/test_a.py does not belong in it"),
        ({"fedfair/data.csv": b""}, "fedfair/data.csv does not belong in it"),
        ({"fedfair/__init__.py": None}, "fedfair/__init__.py is missing"),
        ({f"{METADATA}licenses/LICENSE": None}, "LICENSE is missing"),
        ({f"{METADATA}licenses/fedfair/cli/heart/README.md": None}, "heart/README.md is missing"),
        ({f"{METADATA}METADATA": b"Version: 1.1\n"}, "do not state version 1.0"),
        ({"fedfair/__init__.py": KEY}, "holds a private key"),
    ],
)
def test_a_wheel_that_must_not_be_released_is_named(changed: dict[str, bytes | None], fault: str) -> None:
    contents = {name: raw for name, raw in {**SOUND, **changed}.items() if raw is not None}
    (told,) = wheel_faults(contents, {"fedfair/__init__.py"}, "1.0")
    assert fault in told


def test_an_sdist_without_what_builds_it_is_refused() -> None:
    assert len(sdist_faults({}, "1.0")) == 6
    assert "lies outside" in sdist_faults({"other/x": b""}, "1.0")[-1]


def test_a_version_has_a_dated_section_of_the_changelog() -> None:
    assert changelog_fault("# Changelog\n\n## [1.0] - 2026-01-31\n", "1.0") == ""
    assert "YYYY-MM-DD" in changelog_fault("## [Unreleased]\n## [1.0]\n", "1.0")


@pytest.mark.slow
def test_this_tree_can_be_released(tmp_path: Path) -> None:
    wheel, sdist, sums = release(tmp_path)
    assert wheel_faults(wheel_contents(wheel), expected_files(tracked()), __version__) == []
    assert sdist_faults(sdist_contents(sdist), __version__) == []
    assert [line.split()[1] for line in sums.read_text().splitlines()] == [wheel.name, sdist.name]
