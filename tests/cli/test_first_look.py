"""`fedfair workspace create --from FILE` looks at the file, and `fedfair plan check` repeats what it found."""

import json
import random
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedfair.cli.advise import ADVICE
from fedfair.cli.plan import app as plan_app
from fedfair.cli.workspace import app
from fedfair.errors import DataError
from fedfair.plan.loading import load_plan
from fedfair.studies.advice import search
from fedfair.studies.advice.document import AdviceDocument, TriedSetting
from fedfair.studies.advice.settings import EXCESS, PLAIN, AdvisedSetting, setting_of, task_digest
from tests.studies.advice.trial_makers import tried, tried_advice

WORDS = ("create", "lead", "-f", "heart", "--template", "csv", "--from", "own.csv", "--label", "died")
PLAN = Path("lead/plan/plan.yaml")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder with a file of 90 records."""
    monkeypatch.chdir(tmp_path)
    write(90)
    return tmp_path


def write(records: int, died: str = "") -> None:
    source = random.Random(5)  # noqa: S311 - made-up records
    rows = [f"{source.randrange(20, 80)},{source.choice('FM')},{place % 3 % 2}" for place in range(records)]
    if died:
        rows[7] = f"34,F,{died}"
    Path("own.csv").write_text("\n".join(["age,sex,died", *rows]) + "\n")


def run(*words: str) -> str:
    outcome = CliRunner().invoke(app, list(words))
    if outcome.exception is not None and not isinstance(outcome.exception, SystemExit):
        raise outcome.exception
    return " ".join(outcome.output.split())


def check() -> str:
    outcome = CliRunner().invoke(plan_app, ["check", "-p", str(PLAN), "--json"], catch_exceptions=False)
    return " ".join(json.loads(outcome.stdout)["notes"])


def advised(monkeypatch: pytest.MonkeyPatch, *found: TriedSetting) -> None:
    """Let the look find these figures, without any training."""

    def advise(
        plan: object, sites: object, _root: object, grid: search.AdviceGrid, *_told: object
    ) -> AdviceDocument:
        assert grid.quick
        assert len(sites) == 2  # type: ignore[arg-type]
        return tried_advice(found, task_digest=task_digest(plan))  # type: ignore[arg-type]

    monkeypatch.setattr(search, "advise_sites", advise)


def test_a_new_plan_has_what_the_look_at_its_file_found(monkeypatch: pytest.MonkeyPatch) -> None:
    advised(monkeypatch, tried(PLAIN), tried(EXCESS, 0.41, gain=0.3))
    assert "Recommended: measure excess, worst_group_size 0.1 and tradeoff 0.05." in run(*WORDS)
    assert setting_of(load_plan(PLAN)) == EXCESS
    text = " ".join(line.strip(" #") for line in PLAN.read_text().splitlines())
    assert (
        "a mean loss of 0.410 ± 0.010 (plain training 0.400, base rate 0.600) and 1.600 in the worst 10 %" in text
    )
    assert max(map(len, PLAN.read_text().splitlines())) <= 120
    assert Path("lead/advice", ADVICE).is_file()
    assert "advice/" in Path("lead/.gitignore").read_text().split()
    assert "recommends" not in check()
    PLAN.write_text(PLAN.read_text().replace("measure: excess", "measure: loss  "))
    assert "lead/advice/advice.json recommends measure excess" in check()


def test_plain_averaging_and_a_lower_rate_are_written_where_they_are_better(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow = AdvisedSetting("loss", 1.0, 1.0, 0.1)
    advised(monkeypatch, tried(PLAIN), tried(EXCESS, 0.45, cost=0.05), tried(slow, 0.35, cost=-0.05))
    run(*WORDS)
    plan = load_plan(PLAN)
    assert plan.training.algorithm == "fedavg"
    assert plan.objective.measure == "loss"
    assert plan.training.server_optimizer is not None
    assert (plan.training.server_optimizer.name, plan.training.server_optimizer.learning_rate) == ("adam", 0.1)
    assert "recommends" not in check()
    PLAN.write_text(PLAN.read_text().replace("learning_rate: 0.1}", "learning_rate: 0.3}"))
    assert "this plan's own setting, at the rate 0.3, reached 0.400" in check()


def test_where_nothing_can_be_looked_at_the_usual_plan_is_written_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    run(*WORDS, "--no-look")
    usual = PLAN.read_text()
    for records, died, reason in ((30, "", "30 records are too few"), (90, "NA", "label")):
        (folder / "lead").rename(folder / f"lead-{records}")
        write(records, died)
        said = run(*WORDS)
        assert "not looked at: " in said
        assert reason in said
        assert "`fedfair plan advise -c collaborator.yaml`" in said
        assert PLAN.read_text().split("objective:")[1] == usual.split("objective:")[1]
        assert not Path("lead/advice").exists()
    (folder / "lead").rename(folder / "other")
    advised(monkeypatch, tried(PLAIN, base_gain=-0.1), tried(EXCESS, base_gain=-0.1))
    write(90)
    assert "No setting is recommended" in run(*WORDS)
    assert PLAN.read_text() == usual


def test_an_interrupt_while_looking_and_a_broken_file_leave_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(search, "advise_sites", interrupted)
    outcome = CliRunner().invoke(app, list(WORDS))
    assert outcome.exit_code == 130
    assert not Path("lead").exists()
    Path("own.csv").write_text("age\n1\n")
    with pytest.raises(DataError, match="has one column"):
        run(*WORDS)
    assert not Path("lead").exists()


@pytest.mark.slow
def test_a_look_at_real_records_ends_with_a_plan_that_is_advised(monkeypatch: pytest.MonkeyPatch) -> None:
    from fedfair.workspace import create

    monkeypatch.setitem(create.TEMPLATES, "csv", 20)
    assert "than the base rate" in run(*WORDS) or load_plan(PLAN)
    kept = AdviceDocument.model_validate_json(Path("lead/advice", ADVICE).read_bytes())
    assert kept.trials is not None
    assert kept.trials.rounds == 20
    assert kept.task_digest == task_digest(load_plan(PLAN))
