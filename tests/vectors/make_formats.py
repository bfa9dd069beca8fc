"""Writes the sample files of `tests/vectors/formats`: one of each format that this version writes.

    python -m tests.vectors.make_formats

Run it once for a version whose formats have changed, and commit what it writes beside the older samples, in a
folder of the new version. Older folders stay: they show what is still read. No key is written.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from fedfair.cli.loopback import Processes, prepare
from fedfair.version import __version__
from fedfair.workspace.archive import pack
from tests import plans

TARGET = Path(__file__).parent / "formats" / __version__
NAMES = ("clinic-a", "clinic-b", "clinic-c")
KEPT = (
    "plan/plan.yaml", "plan/plan.initial.safetensors", "clinic-a.yaml", "approvals/clinic-a.json",
    "result.json", "save/last.safetensors", "save/evaluation.json", "egress/clinic-a.jsonl",
    "received/clinic-a.jsonl", "certificate.json", "cert/ca.pem", "cert/authority/revoked.crl",
)  # fmt: skip
FOLDERS = ("save", "state")
"""The state of the aggregator and of the sites, whole."""


def main() -> None:
    """Write the samples of this version."""
    with tempfile.TemporaryDirectory() as name:
        noise = {"sample_level": {"noise_multiplier": 1.0, "clip": 1.0, "delta": 1e-5}}
        document = plans.small_plan(rounds=3, names=NAMES, protection={"mode": "malicious"})
        workspace = prepare(Path(name) / "federation", document)
        with Processes(workspace) as processes:
            processes.wait()
        private = plans.small_plan(rounds=2, names=NAMES, protection={"mode": "malicious"})
        private["privacy"] = noise
        private["task"] = {"data": "breast-cancer", "partition": {"scheme": "random"}, "model": {"name": "linear"}}
        with_ledger = prepare(Path(name) / "private", private)
        with Processes(with_ledger) as processes:
            processes.wait()
        fedfair = [sys.executable, "-m", "fedfair.cli"]
        made = ["certificate", "--split", "train", "--quiet"]
        subprocess.run([*fedfair, *made], check=True, cwd=workspace.folder)
        shutil.rmtree(TARGET, ignore_errors=True)
        for one in KEPT:
            if (workspace.folder / one).exists():
                _copy(workspace.folder / one, TARGET / one)
        for folder in FOLDERS:
            for path in sorted((workspace.folder / folder).rglob("*")):
                is_of_others = folder == "state" and not path.name.startswith(f"{NAMES[0]}")
                if path.is_file() and path.suffix != ".lock" and not is_of_others:
                    _copy(path, TARGET / path.relative_to(workspace.folder))
        _copy(with_ledger.folder / "state" / "clinic-a.ledger.sqlite", TARGET / "ledger.sqlite")
        (TARGET / "workspace.zip").write_bytes(pack(workspace.folder))


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


if __name__ == "__main__":
    main()
