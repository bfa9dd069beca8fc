"""Which of its models a run has returned is one fact, in one sentence, in every file and output."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from fedfair.cli.commands import app
from fedfair.plan.schema import Plan
from fedfair.report.model_card import model_card
from fedfair.report.run_page import run_page
from fedfair.results.document import to_text
from fedfair.results.reading import parse_result
from fedfair.results.warnings import reassurance, result_warnings
from fedfair.run.saved_model import read_saved, save_model
from fedfair.run.which_model import KINDS, UNTRAINED, WhichModel
from fedfair.simulation.simulate import SimulationOutcome, simulate_sites
from tests import bc10

torch.set_num_threads(1)

FALLEN_BACK = f"{UNTRAINED}: no trained one was better"


def too_fast(output: str) -> Plan:
    """Return a plan whose one step leaves the worst tenth worse off than guessing, from which training begins."""
    plan = bc10.plan(3, rounds=2, learning_rate=300.0, threshold_init=0.7, output=output,
                     objective={"worst_group_size": 0.1})  # fmt: skip
    return Plan.model_validate(plan.model_dump() | {"evaluation": plan.evaluation.model_dump() | {"every": 1}})


def simulated(output: str) -> SimulationOutcome:
    return simulate_sites(too_fast(output), bc10.sites(bc10.random_thirds()), Path())


@pytest.fixture(scope="module")
def fallen_back() -> SimulationOutcome:
    return simulated("best")


@pytest.mark.parametrize(("output", "state"), [("last", "worse"), ("tail", "worse"), ("average", "fine")])
def test_a_stated_output_is_what_is_returned_however_it_fares(output: str, state: str) -> None:
    outcome = simulated(output)
    assert outcome.model.vector.any()
    assert outcome.result.model is not None
    assert (outcome.result.model.kind, outcome.result.model.round) == (output, 2)
    verdict = outcome.result.verdict
    assert verdict is not None
    # The model is returned as the plan says, and the warning is clear.
    assert verdict.state == state
    assert verdict.sentences[0].startswith("Do not use this model as it is") == (state == "worse")
    if output == "last":
        assert outcome.trained is not None
        assert outcome.saved.model.vector.tobytes() == outcome.trained.model.vector.tobytes()


def test_best_may_fall_back_and_keeps_what_training_ended_with(fallen_back: SimulationOutcome) -> None:
    assert not fallen_back.model.vector.any()
    assert fallen_back.saved.which == WhichModel("best", 0, 2)
    assert fallen_back.trained is not None
    assert fallen_back.trained.which == WhichModel("last", 2, 2)
    assert fallen_back.trained.model.vector.tobytes() == simulated("last").model.vector.tobytes()


def test_every_output_says_which_model_it_is(fallen_back: SimulationOutcome, tmp_path: Path) -> None:
    result, path = fallen_back.result, tmp_path / "last.safetensors"
    save_model(path, fallen_back.layout, fallen_back.saved, fallen_back.origin)
    read = parse_result(to_text(result), "result.json")
    shown = CliRunner().invoke(app, ["model", "show", "--model", str(path)])
    as_json = CliRunner().invoke(app, ["model", "show", "--json", "--model", str(path)])
    assert json.loads(as_json.output)["which_model"] == FALLEN_BACK
    outputs = {
        "result": to_text(result),
        "terminal": "\n".join(reassurance(result)),
        "page": run_page({"result.json": read}),
        "card": model_card(read_saved(path), read),
        "model show": " ".join(shown.output.split()),
    }
    assert {name for name, text in outputs.items() if FALLEN_BACK not in text} == set()
    assert read.model == result.model


def test_all_that_stands_on_one_page_is_of_one_model(fallen_back: SimulationOutcome, tmp_path: Path) -> None:
    result = fallen_back.result
    path = tmp_path / "last.safetensors"
    save_model(path, fallen_back.layout, fallen_back.saved, fallen_back.origin)
    verdict = result.verdict
    assert verdict is not None
    assert any(FALLEN_BACK.partition(":")[0] in sentence for sentence in verdict.sentences)
    assert any(finding.subject == "training" for finding in verdict.findings)
    # The untrained model guesses, so that no figure of the verdict may differ from those of the result.
    for finding in verdict.findings:
        if finding.subject == "objective":
            assert finding.value == pytest.approx(result.objective.rcvar)  # type: ignore[union-attr]
    for text in (run_page({"result.json": result}), model_card(read_saved(path), result)):
        # What no model of this kind can do may be said of it; that it serves somebody may not.
        assert "his model serves" not in text or "serves no group" in text
        assert "certainly does" not in text
    assert verdict.better_than_guess_from is None
    assert any("no trained model was better" in doubt for doubt in result_warnings(result))


def test_a_card_of_another_model_of_the_run_is_refused(fallen_back: SimulationOutcome, tmp_path: Path) -> None:
    path = tmp_path / "trained.safetensors"
    assert fallen_back.trained is not None
    save_model(path, fallen_back.layout, fallen_back.trained, fallen_back.origin)
    with pytest.raises(Exception, match="the result is about"):
        model_card(read_saved(path), fallen_back.result)


def test_the_words_tell_every_kind_apart() -> None:
    said = {WhichModel(kind, at, 80).words for kind in KINDS for at in ((0,) if kind == "initial" else (40, 80))}
    assert len(said) == 2 * len(KINDS) - 1
    assert WhichModel("best", 40, 80).words == "the model of round 40 of 80, the best that was evaluated"
    assert WhichModel("best", 0, 80).words == FALLEN_BACK
