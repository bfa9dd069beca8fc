"""SIGTERM ends every command as Ctrl-C does, also one that is loaded only when it is asked for."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.conftest import REPOSITORY
from tests.patience import PATIENCE

ENDLESS = """
federation: {name: demo, collaborators: [a, b, c]}
task:
  data: breast-cancer
  partition: {scheme: random}
  standardize: none
  model: {name: linear}
training: {rounds: 1000000, device: cpu}
evaluation: {every: 5}
secure_aggregation: {mode: "off"}
"""


def test_a_signal_ends_a_simulation(tmp_path: Path) -> None:
    (tmp_path / "plan").mkdir()
    (tmp_path / "plan" / "plan.yaml").write_text(ENDLESS)
    said = tmp_path / "said.txt"
    with said.open("w") as out:
        running = subprocess.Popen(
            [sys.executable, "-m", "fedfair.cli", "simulate", "--engine", "loop", "--log-format", "json"],
            cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(REPOSITORY)}, stdout=out, stderr=out,
        )  # fmt: skip
    try:
        while '"round": 5' not in said.read_text() and running.poll() is None:
            time.sleep(0.05)
        running.send_signal(signal.SIGTERM)
        assert running.wait(timeout=PATIENCE) == 130, said.read_text()
    finally:
        running.kill()
        running.wait()
    assert "Traceback" not in said.read_text()
