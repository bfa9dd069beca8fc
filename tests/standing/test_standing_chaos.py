"""A few faults in a federation that stands; `benchmarks/standing_chaos.py` injects hundreds."""

from argparse import Namespace
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.patience import PATIENCE


@pytest.mark.slow
def test_a_few_faults_lose_no_study_and_need_no_hands_and_another_model_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(REPOSITORY / "benchmarks")
    from standing_chaos import play

    chaos = play(tmp_path, Namespace(studies=2, faults=8, seed=1, seconds=PATIENCE, patience=PATIENCE, idle=0.0))
    found = chaos.found
    assert sum(found.faults.values()) == 8
    assert (found.wrong, found.lost, found.hands) == ([], [], [])
    assert found.ends == {"finished": 2, "tracebacks": 0}
    # One other bit in what one site has kept is a wrong sum.
    kept = next((tmp_path / "clinic-a" / "runs").rglob("last.safetensors"))
    kept.write_bytes(kept.read_bytes()[:-1] + bytes([kept.read_bytes()[-1] ^ 1]))
    chaos.settle()
    assert len(found.wrong) == 1
