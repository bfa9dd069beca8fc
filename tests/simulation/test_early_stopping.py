"""Training that ends early, after so many evaluations without a better model."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedfair.errors import PlanError
from fedfair.plan.schema import Plan
from fedfair.run.progress import Progress, purpose_at
from fedfair.run.rules import RunRules
from fedfair.run.training_run import TrainingRun
from fedfair.simulation.backend import Engine
from fedfair.simulation.clients import LoopClients
from fedfair.simulation.simulate import SimulationOutcome, play, simulate
from fedfair.statistics.statistic import When
from fedfair.tables.source import load_federation
from fedfair.training.assembly import flat_model
from fedfair.training.client import TrainingClient
from tests.plans import parsed

ROUNDS = 12

# Steps that are far too long: the first models are the best ones.
RATE = 30.0


def plan(patience: int | None, **training: object) -> Plan:
    stated = {
        "rounds": ROUNDS, "learning_rate": RATE, "schedule": "constant", "output": "best", "batch_size": 16,
        "server_optimizer": {"name": "sgd"}, "patience": patience, "seed": 3, **training,
    }  # fmt: skip
    return parsed(
        task={"partition": {"scheme": "random"}, "standardize": "secure", "validation_fraction": 0.3},
        training=stated,
        evaluation={"every": 1},
    )


def played(stated: Plan, engine: Engine = "loop") -> tuple[SimulationOutcome, list[float]]:
    """Return a simulation, and by evaluation the figure that says which model is the best."""
    found: list[float] = []

    def on_progress(progress: Progress) -> None:
        if progress.evaluation is not None:
            found.append(progress.evaluation.objective)

    return simulate(stated, Path(), engine=engine, on_progress=on_progress), found


def end_and_best(figures: Sequence[float], patience: int) -> tuple[int, int]:
    """Return after how many rounds so many figures in a row were no better, and which was the best by then."""
    best = 0
    for number, figure in enumerate(figures):
        best = number if figure < figures[best] else best
        if number - best == patience:
            return number, best
    raise AssertionError(figures)


@pytest.mark.parametrize("patience", [1, 3])
def test_training_ends_with_the_evaluation_that_exhausts_the_patience(patience: int) -> None:
    whole, figures = played(plan(None))
    ended, best = end_and_best(figures, patience)
    assert 0 < ended < whole.result.rounds == ROUNDS
    found, seen = played(plan(patience))
    assert seen == figures[: ended + 1]
    assert found.result.rounds == ended
    assert found.result.model is not None
    assert (found.result.model.kind, found.result.model.round) == ("best", best)


def test_patience_that_is_never_exhausted_changes_no_bit() -> None:
    whole, _ = played(plan(None))
    found, _ = played(plan(ROUNDS + 1))
    assert found.model.vector.tobytes() == whole.model.vector.tobytes()
    assert found.result.rounds == ROUNDS


def test_an_exact_evaluation_still_follows() -> None:
    stated = plan(1).with_(evaluation={"method": "exact"})
    found, _ = played(stated)
    assert found.result.rounds < ROUNDS
    assert found.result.evaluation.method == "exact"


@pytest.mark.parametrize("state", ["stalls", "goes on"])
def test_no_other_state_of_a_run_is_believed(state: str) -> None:
    """A site that is sent a state may stand at the end only where the plan's training ends."""
    stated = plan(2)
    splits = load_federation(stated, Path())
    schema = next(iter(splits.values())).train.schema
    flat = flat_model(stated, schema, torch.device("cpu"), Path())
    rules = RunRules(stated, flat.layout, schema)
    run = TrainingRun(stated, flat.layout, schema, flat.vector())
    play(run, LoopClients({name: TrainingClient(stated, name, own, flat) for name, own in splits.items()}))
    ended = run.state
    assert rules.may_be(ended)
    if state == "stalls":
        # It may not train on.
        assert not rules.may_be(replace(ended, stage=purpose_at(When.ROUND), final=None))
    else:
        # With an evaluation fewer it has to train on.
        assert not rules.may_be(replace(ended, history=ended.history[:-1]))


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({"training": {"output": "last"}}, "chooses no model by its evaluations"),
        (
            {"privacy": {"sample_level": {"noise_multiplier": 1.0, "clip": 1.0}}},
            "tell of no model that it is better",
        ),
        ({"training": {"patience": 0}}, "must be >= 1, found 0"),
    ],
)
def test_patience_needs_evaluations_that_choose(sections: dict[str, dict[str, object]], words: str) -> None:
    with pytest.raises(PlanError, match=words):
        plan(2).with_(**sections)
