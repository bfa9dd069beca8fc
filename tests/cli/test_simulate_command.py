"""`fedfair simulate --engine`, as a person types it."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedfair.cli.commands import app
from fedfair.errors import DataError, PlanError

PLAN = """
federation: {name: demo, collaborators: [a, b, c]}
task:
  data: breast-cancer
  partition: {scheme: dirichlet, alpha: 0.5}
  test_fraction: 0.2
  standardize: secure
  model: {name: mlp, hidden: [8]}
objective: {measure: loss}
training: {rounds: 4, batch_size: 16, local_steps: 2, device: cpu, precision: fp64}
secure_aggregation: {mode: "off"}
"""


def simulated(folder: Path, engine: str, text: str = PLAN) -> dict[str, object]:
    plan = folder / "plan" / "plan.yaml"
    plan.parent.mkdir(exist_ok=True)
    plan.write_text(text)
    out = folder / f"{engine}.json"
    done = CliRunner().invoke(
        app, ["simulate", "-p", str(plan), "--engine", engine, "--output", str(out), "--quiet"]
    )
    if done.exception is not None:
        raise done.exception
    result: dict[str, object] = json.loads(out.read_text())
    return result


@pytest.mark.thorough
def test_every_engine_reports_the_same_run(tmp_path: Path) -> None:
    loop, vectorised, auto = (simulated(tmp_path, engine) for engine in ("loop", "vectorised", "auto"))
    assert auto["train"] == vectorised["train"]
    # A few roundings of 2^-53 in each of eight steps, on losses of order one.
    assert vectorised["train"]["mean"] == pytest.approx(loop["train"]["mean"], rel=1e-12)
    assert vectorised["threshold"] == pytest.approx(loop["threshold"], rel=1e-12)
    for name, site in loop["collaborators"].items():
        assert vectorised["collaborators"][name]["n"] == site["n"]
        assert vectorised["collaborators"][name]["mean"] == pytest.approx(site["mean"], rel=1e-12)


def attempted(folder: Path, *words: str) -> BaseException | None:
    plan = folder / "plan" / "plan.yaml"
    plan.parent.mkdir(exist_ok=True)
    plan.write_text(PLAN)
    return CliRunner().invoke(app, ["simulate", "-p", str(plan), "--quiet", *words]).exception


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (("--output", "{}/plan/plan.yaml"), "is no result of fedfair's"),
        (("--model", "{}/plan/plan.yaml"), "exists and is no model"), (("--output", "{}/plan"), "is a folder"),
        (("--model", "{}/plan"), "is a folder"), (("--save", "{}/plan/plan.yaml"), "--save needs a folder"),
        (("--save", "{}/none/save"), "does not exist"),
        (("--output", "{}/same", "--model", "{}/same"), "both name"),
    ],
)  # fmt: skip
def test_a_place_not_to_be_written_is_refused_first(words: tuple[str, ...], fault: str, tmp_path: Path) -> None:
    refused = attempted(tmp_path, *(word.format(tmp_path) for word in words))
    assert isinstance(refused, DataError)
    assert fault in refused.message
    assert refused.remedy
    assert (tmp_path / "plan" / "plan.yaml").read_text() == PLAN
    assert [path.name for path in tmp_path.iterdir()] == ["plan"]


def test_engines_that_do_not_suit_are_refused_and_older_results_replaced(tmp_path: Path) -> None:
    text = PLAN.replace("precision: fp64", "precision: bf16").replace("data: breast-cancer", "data: digits")
    with pytest.raises(PlanError, match=r"cannot be vectorised: training\.precision is bf16") as refused:
        simulated(tmp_path, "vectorised", text)
    assert "--engine auto" in refused.value.diagnostics()
    assert not (tmp_path / "vectorised.json").exists()
    with pytest.raises(SystemExit) as ended:
        simulated(tmp_path, "warp")
    assert ended.value.code == 2
    place = tmp_path / "auto.json"
    place.touch()
    assert simulated(tmp_path, "auto") == json.loads(place.read_text()) != {}
    assert attempted(tmp_path, "--output", str(place)) is None


@pytest.mark.parametrize(("word", "value"), [("--workers", "2"), ("--address", "auto")])
def test_workers_without_the_engine_that_has_them_are_refused(word: str, value: str, tmp_path: Path) -> None:
    refused = attempted(tmp_path, word, value)
    assert isinstance(refused, PlanError)
    assert refused.message == f"{word} is for --engine ray, and the engine is auto"
    assert "--engine ray" in refused.remedy
