"""A folder of wheels: filled from the package index once, then enough for an install without a network."""

import json
import os
import subprocess
import sys
import tarfile
import venv
from pathlib import Path

import pytest

from fedfair.extras import install_command
from fedfair.version import __version__
from supply.bundle import pack
from supply.pins import BASE, RUN
from supply.wheels import fill

SECONDS = 1800


def pip_of(place: Path) -> list[str]:
    """Return the pip of this process for a new environment without one, whose own would take as long to make."""
    venv.create(place)
    return [sys.executable, "-m", "pip", "--python", str(place / "bin" / "python"), "--quiet"]


def alone() -> dict[str, str]:
    """Return the variables under which no setting of this machine brings another source of files back."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHONPATH"))}
    # Bytecode of what is never imported would take as long as all else.
    return kept | {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_COMPILE": "0"}


@pytest.mark.slow
@pytest.mark.timeout(2 * SECONDS)
def test_a_host_without_a_network_installs_from_the_folder_by_hash_alone(tmp_path: Path) -> None:
    folder, place = tmp_path / "wheels", tmp_path / "installed"
    try:
        lists = fill(RUN, folder)
    except subprocess.CalledProcessError as fault:
        pytest.skip(f"no package index here, or no room for the files: {fault}")
    assert {path.parent for path in lists} == {folder}
    words = ["--no-index", "--find-links", str(folder), "--no-deps", "--require-hashes"]
    named = [word for path in lists for word in ("-r", str(path))]
    pip = pip_of(place)
    # Every file against its hash, and every requirement of each against the others; to unpack torch shows no more.
    whole = [word for word in words if word != "--no-deps"]
    dry = [*pip, "install", "--dry-run", "--report", str(tmp_path / "report.json"), *whole, *named]
    subprocess.run(dry, check=True, env=alone(), cwd=tmp_path, timeout=SECONDS)
    report = json.loads((tmp_path / "report.json").read_text())
    assert {"fedsrcvar", "torch", "typer"} <= {each["metadata"]["name"] for each in report["install"]}
    # One byte more in one file, and nothing is installed.
    (wheel,) = folder.glob("typer-*.whl")
    wheel.write_bytes(wheel.read_bytes() + b"\0")
    again = subprocess.run(
        [*pip, "install", "--dry-run", *words, *named], check=False, capture_output=True, text=True,
        env=alone(), cwd=tmp_path, timeout=SECONDS,
    )  # fmt: skip
    assert again.returncode != 0
    assert "DO NOT MATCH THE HASHES" in again.stderr


@pytest.mark.slow
@pytest.mark.timeout(2 * SECONDS)
def test_an_aggregators_host_installs_from_one_file_and_has_no_torch(tmp_path: Path) -> None:
    place = tmp_path / "installed"
    try:
        bundle = pack(BASE, tmp_path / "build")
    except subprocess.CalledProcessError as fault:
        pytest.skip(f"no package index here, or no room for the files: {fault}")
    with tarfile.open(bundle) as archive:
        archive.extractall(tmp_path, filter="data")
    folder = tmp_path / bundle.stem
    check, command = (folder / "INSTALL.txt").read_text().splitlines()
    subprocess.run(check.split(), check=True, cwd=folder, timeout=SECONDS)
    pip = pip_of(place)
    program, *words = command.split()
    assert program == "pip"
    assert {"--no-index", "--require-hashes"} <= set(words)
    subprocess.run([*pip, *words], check=True, env=alone(), cwd=folder, timeout=SECONDS)
    subprocess.run([*pip, "check"], check=True, env=alone(), cwd=folder, timeout=SECONDS)
    fedfair = str(place / "bin" / "fedfair")
    told = subprocess.run([fedfair, "--version"], check=True, capture_output=True, text=True, env=alone())
    assert told.stdout.strip() == f"fedfair {__version__}"
    for words in (["workspace", "create", "heart"], ["plan", "check", "-p", "heart/plan/plan.yaml"]):
        subprocess.run([fedfair, *words], check=True, cwd=tmp_path, env=alone(), timeout=SECONDS)
    told = subprocess.run([fedfair, "simulate", "-p", "heart/plan/plan.yaml"], check=False, capture_output=True,
                          text=True, cwd=tmp_path, env=alone(), timeout=SECONDS)  # fmt: skip
    assert (told.returncode, install_command("train") in told.stderr) == (2, True)
