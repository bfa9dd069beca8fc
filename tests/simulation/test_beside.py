"""Plain training beside a simulated run: which plan it has, and that its figures are those of that plan alone."""

import json
from pathlib import Path
from typing import get_args

import pytest
import yaml
from typer.testing import CliRunner

from fedfair.cli.commands import app
from fedfair.errors import DataError, PlanError
from fedfair.plan.algorithms import ALGORITHMS, AlgorithmName
from fedfair.plan.loading import load_plan
from fedfair.results.baselines import BaselineFigures, PlainTraining
from fedfair.results.document import ResultDocument, to_text
from fedfair.results.reading import parse_result, read_result
from fedfair.simulation.beside import plain_plan, with_plain
from fedfair.simulation.simulate import simulate
from tests import plans
from tests.report.test_run_page import read
from tests.result_files import complete

TASK: dict[str, object] = {
    "partition": {"scheme": "random"}, "standardize": "secure", "test_fraction": 0.3,
}  # fmt: skip
DIGEST = "sha256:" + "2" * 64
CONTINUED = {"weights": DIGEST, "continues": {"plans": [DIGEST], "rounds": 4, "state": DIGEST}}
OTHERS = [name for name in get_args(AlgorithmName) if name not in {"fedavg", "erm"}]


@pytest.mark.parametrize("algorithm", OTHERS)
def test_plain_training_has_the_terms_of_the_plan_and_minimises_the_mean(algorithm: AlgorithmName) -> None:
    training: dict[str, object] = {"algorithm": algorithm, "rounds": 7, "learning_rate": 0.3, "seed": 5}
    if algorithm == "qffl":
        training["options"] = {"loss_power": 2.0}
    plan = plans.parsed(task=TASK, training=training)
    plain, facts = plain_plan(plan), ALGORITHMS[algorithm]
    assert plain.training.algorithm == ("erm" if facts.centralised else "fedavg")
    # Where a round of the plan's algorithm is no mean of changes, Adam was never asked for.
    assert plain.training.server_optimizer is not None
    assert plain.training.server_optimizer.name == "sgd"
    changed = {"algorithm", "options", "server_optimizer"}
    assert plain.training.model_dump(exclude=changed) == plan.training.model_dump(exclude=changed)
    assert plain.model_dump(exclude={"training"}) == plan.model_dump(exclude={"training"})


def test_plain_training_has_no_references() -> None:
    excess: dict[str, object] = {"measure": "excess", "reference": {"rounds": 3}}
    plan = plans.untuned(task=TASK, objective=excess)
    (objective,) = (plain_plan(plans.Plan.model_validate(plan)).objective,)
    assert (objective.measure, objective.reference) == ("loss", None)
    assert objective.worst_group_size == 0.1


@pytest.mark.parametrize(
    ("training", "fault"),
    [
        ({"algorithm": "fedavg"}, "training.algorithm: is fedavg, which is plain training itself"),
        ({"algorithm": "erm"}, "training.algorithm: is erm, which is plain training itself"),
        ({"rounds": 9, "initial": CONTINUED}, "continues an earlier run, whose effort no plain training has had"),
    ],
)
def test_what_is_plain_has_nothing_plain_beside_it(training: dict[str, object], fault: str) -> None:
    with pytest.raises(PlanError) as refused:
        plain_plan(plans.parsed(task=TASK, training=training))
    assert fault in refused.value.message
    assert refused.value.remedy


def test_the_command_keeps_the_figures_that_the_plain_plan_has_by_itself(tmp_path: Path) -> None:
    plan_file = tmp_path / "plan.yaml"
    stated = plans.stated(task=TASK, training={"rounds": 3, "learning_rate": 0.3})
    plan_file.write_text(yaml.safe_dump(json.loads(json.dumps(stated))))
    plan, out, alone = load_plan(plan_file), tmp_path / "both.json", tmp_path / "alone.json"
    words = ["simulate", "-p", str(plan_file), "--quiet", "--output"]
    for more in ([str(out), "--beside", "plain"], [str(alone)]):
        done = CliRunner().invoke(app, [*words, *more])
        assert done.exit_code == 0, done.exception
    both = read_result(out)
    assert both.baselines is not None
    held = both.baselines.plain
    fedavg = simulate(plan.with_(training={"algorithm": "fedavg"}), tmp_path)
    assert (held.algorithm, held.rounds, held.split) == ("fedavg", 3, "test")
    assert held.risk == fedavg.result.test
    assert held.plan_digest == fedavg.result.plan_digest
    # Nothing else of the result is another one than without.
    of_time = {"timing", "baselines"}
    told = [json.loads(place.read_text()) for place in (out, alone)]
    assert "baselines" not in told[1]
    assert {key: value for key, value in told[0].items() if key not in of_time} == {
        key: value for key, value in told[1].items() if key not in of_time
    }
    refused = CliRunner().invoke(app, [*words, str(out), "--beside", "fair"])
    assert refused.exit_code == 2


def beside(document: ResultDocument, **changes: object) -> PlainTraining:
    risk = document.trained
    told = {
        "algorithm": "fedavg",
        "plan_digest": "sha256:" + "1" * 64,
        "rounds": 20,
        "split": "train",
        "risk": risk,
    }
    return PlainTraining.model_validate(told | changes)


def test_figures_of_other_records_do_not_stand_beside() -> None:
    document = read(complete())
    kept = with_plain(document, beside(document))
    assert kept.baselines == BaselineFigures(plain=beside(document))
    assert parse_result(to_text(kept), "here") == kept
    others = document.trained.model_copy(update={"n": 99})
    for plain in (beside(document, risk=others), beside(document, split="test")):
        with pytest.raises(DataError, match="plain training was judged on"):
            with_plain(document, plain)
