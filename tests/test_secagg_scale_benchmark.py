"""The benchmark of masked rounds by the number of sites: light sites split right, and a measurement is drawn."""

import importlib
import itertools
import runpy
import secrets
import sys
from pathlib import Path

import pytest

from fedfair.secagg.shamir import combine, lagrange_at_zero
from tests.conftest import REPOSITORY

FOLDER = REPOSITORY / "benchmarks"


@pytest.mark.parametrize(("points", "threshold"), [((1, 2, 3, 5), 3), ((2,), 1), (tuple(range(1, 180)), 120)])
def test_any_shares_in_the_basis_of_binomials_give_the_secret_back(
    points: tuple[int, ...], threshold: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Scripts import their neighbours by their bare names.
    monkeypatch.syspath_prepend(str(FOLDER))
    light = importlib.import_module("light_sites")
    secret = secrets.token_bytes(31)
    shares = dict(zip(points, light.split(secret, points, threshold, secrets.token_bytes), strict=True))
    for chosen in itertools.islice(itertools.combinations(points, threshold), 4):
        assert combine(lagrange_at_zero(chosen), [shares[point] for point in chosen]) == secret


def test_it_measures_and_draws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))

    def told(*words: str) -> str:
        monkeypatch.setattr(sys, "argv", ["secagg_scale.py", *words])
        runpy.run_path(str(FOLDER / "secagg_scale.py"), run_name="__main__")
        return capsys.readouterr().out

    measured, picture = tmp_path / "measured.jsonl", tmp_path / "picture.svg"
    measured.write_text(told("--sites", "6", "9", "--rounds", "3"))
    drawn = told("--draw", str(measured), "--chart", str(picture))
    assert [row.split(" | ")[:2] for row in drawn.splitlines()] == [["| 6", "3"], ["| 9", "3"]]
    assert picture.read_text().startswith("<svg")
