"""SIGTERM ends every command as Ctrl-C does, also one that is loaded only when it is asked for."""

import itertools
from pathlib import Path

from tests.fork_server import ENVIRONMENT, started
from tests.patience import PATIENCE

ENDLESS = """
federation: {name: demo, collaborators: [a, b, c]}
task:
  data: breast-cancer
  partition: {scheme: random}
  standardize: none
  model: {name: linear}
objective: {measure: loss}
training: {rounds: 1000000, device: cpu}
evaluation: {every: 5}
secure_aggregation: {mode: "off"}
"""


def test_a_signal_ends_a_simulation(tmp_path: Path) -> None:
    (tmp_path / "plan").mkdir()
    (tmp_path / "plan" / "plan.yaml").write_text(ENDLESS)
    words = ["-m", "fedfair.cli", "simulate", "--engine", "loop", "--log-format", "json"]
    running = started(words, tmp_path, ENVIRONMENT)
    assert running.stdout is not None
    try:
        before = "".join(itertools.takewhile(lambda line: '"round": 5' not in line, running.stdout))
        running.terminate()
        after, _ = running.communicate(timeout=PATIENCE)
        assert running.returncode == 130, before + after
    finally:
        running.kill()
        running.wait()
    assert "Traceback" not in before + after
