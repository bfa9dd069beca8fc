"""Tasks other than plain classes in a simulation: both engines, sums, result, and the optimum of a solver."""

import json
from pathlib import Path

import cvxpy
import numpy as np
import pytest
import torch
from pydantic import ValidationError
from scipy.optimize import minimize

from fedfair.aggregation.target_scaling import loss_unit, of_features, target_scaling
from fedfair.errors import PlanError
from fedfair.fairness.cvar import rcvar
from fedfair.ids import ParticipantId
from fedfair.plan.losses import has_natural_range, natural_range
from fedfair.report.run_page import run_page
from fedfair.report.tables import by_group_size
from fedfair.results.document import to_json
from fedfair.results.warnings import result_warnings
from fedfair.run.training_run import Progress, TrainingRun
from fedfair.simulation.clients import LoopClients
from fedfair.simulation.simulate import SimulationOutcome, play, simulate
from fedfair.tables.source import load_federation
from fedfair.training.assembly import flat_model, objective_of
from fedfair.training.binding import bound
from fedfair.training.client import TrainingClient
from tests.simulation.other_tasks import COLUMNS, ENDS, LABELS, RECORDS, TASKS, columns, plan_of, write_table

SOLVED = 1e-5
"""The conic solver's values are that near the optima: its own tolerance is 1e-8 of numbers of the size of 100."""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    write_table(tmp_path)
    return tmp_path


def told(outcome: SimulationOutcome) -> dict[str, object]:
    found: dict[str, object] = json.loads(json.dumps(to_json(outcome.result)))
    return found


@pytest.mark.parametrize(
    ("name", "model"),
    [
        (name, {"name": "mlp", "hidden": [5]} if place % 2 else {"name": "linear"})
        for place, name in enumerate(TASKS)
        if name != "ordinal"
    ],
)
def test_both_engines_come_to_one_model_and_figures(workspace: Path, name: str, model: dict[str, object]) -> None:
    steps = {"local_steps": 3, "batch_size": 16, "learning_rate": 0.01, "rounds": 8}
    plan = plan_of(name, {"model": model}, objective={"worst_group_size": 0.5}, training=steps)
    loop, together = (simulate(plan, workspace, engine=engine) for engine in ("loop", "vectorised"))
    # The same numbers are added up in another order, 24 steps of a few hundred products in float64.
    np.testing.assert_allclose(together.model.vector, loop.model.vector, rtol=0, atol=1e-11)
    start = bound(plan, load_federation(plan, workspace)[ParticipantId("clinic-a")].train.schema, workspace)
    assert np.abs(loop.model.vector - start.vector).max() > 1e-4
    assert together.model.threshold == pytest.approx(loop.model.threshold, abs=1e-11)
    one, other = loop.result.test, together.result.test
    assert one is not None
    assert other is not None
    assert one.mean == pytest.approx(other.mean, rel=1e-10)
    assert (one.metrics is None) == (other.metrics is None)
    for key, value in (one.metrics or {}).items():
        ours, theirs = (np.array(each, np.float64) for each in (value, (other.metrics or {})[key]))
        np.testing.assert_allclose(theirs, ours, rtol=1e-9, atol=0)


@pytest.mark.parametrize("name", [name for name in TASKS if name not in {"binary", "ordinal"}])
def test_what_only_classes_have_is_absent_and_not_zero(workspace: Path, name: str) -> None:
    found = told(simulate(plan_of(name), workspace))
    for split in ("train", "test"):
        risk = found[split]
        assert isinstance(risk, dict)
        assert not {"accuracy", "confusion", "scores"} & risk.keys()
        assert risk["metrics"]
    text = json.dumps(found)
    assert "accuracy" not in text.replace("label_accuracy", "")
    # Only where every outcome can be given the same chance does guessing have a price.
    assert ("uniform_floor" in found) == name.startswith("multi_label")


def test_two_classes_by_one_output_have_accuracy_confusion_and_scores(workspace: Path) -> None:
    plan = plan_of(
        "binary", evaluation={"scores": True}, training={"algorithm": "fedavg", "rounds": 40, "learning_rate": 0.5}
    )
    found = simulate(plan, workspace).result
    assert found.test is not None
    assert found.test.accuracy is not None
    assert found.test.accuracy > 0.8
    assert found.test.confusion is not None
    assert found.test.scores is not None
    assert found.test.scores.auc is not None
    assert found.test.scores.auc > 0.85
    assert found.uniform_floor == pytest.approx(np.log(2.0))


def test_two_outputs_and_one_train_the_same_model_of_two_classes(workspace: Path) -> None:
    """With the weights w of the one and (-w/2, w/2) of the two, a step of half the rate is the same step."""
    training = {"algorithm": "fedavg", "learning_rate": 0.2, "output": "last"}
    one = simulate(plan_of("binary", training=training), workspace)
    both = plan_of("binary", {"loss": "cross_entropy"}, training=training | {"learning_rate": 0.1})
    two = simulate(both, workspace)
    (_, bias), (_, weights) = two.layout.slices()
    rows = np.column_stack([two.model.vector[bias], two.model.vector[weights].reshape(2, -1)])
    assert np.abs(one.model.vector).max() > 0.05
    # Bias, then weights, as in the layout of the one.
    np.testing.assert_allclose(one.model.vector, rows[1] - rows[0], rtol=0, atol=1e-12)


def test_a_linear_model_of_ordered_classes_comes_down_to_proportional_odds(workspace: Path) -> None:
    """An independent likelihood, minimised by SciPy over slopes and borders as they are."""
    training = {"algorithm": "fedavg", "rounds": 400, "learning_rate": 2.5, "batch_size": "full", "output": "last"}
    plan = plan_of(
        "ordinal", {"test_fraction": 0.0, "standardize": "none"}, training=training, evaluation={"every": 400}
    )
    with pytest.raises(PlanError, match="cannot be vectorised"):
        simulate(plan, workspace, engine="vectorised")
    found = simulate(plan, workspace)
    table = columns()
    features, grades = np.stack([table[name] for name in COLUMNS], axis=1), table["grade"].astype(int)

    def negative_likelihood(values: np.ndarray) -> float:
        above = 1.0 / (1.0 + np.exp(-(features @ values[:3])[:, None] + np.sort(values[3:])))
        reached = np.concatenate([np.ones((RECORDS, 1)), above, np.zeros((RECORDS, 1))], axis=1)
        own = (reached[:, :-1] - reached[:, 1:])[np.arange(RECORDS), grades]
        return float(-np.log(np.maximum(own, 1e-300)).mean())

    best = minimize(negative_likelihood, np.array([1.0, 0.0, 0.0, -1.0, 0.0, 1.0]), method="BFGS")
    assert found.result.train is not None
    # Gradient descent on a smooth strictly convex likelihood: after so many steps its slope is below a thousandth.
    assert best.fun - 1e-9 <= found.result.train.mean <= best.fun + 1e-4
    # Borders and bias come first in the layout.
    np.testing.assert_allclose(found.model.vector[-3:], best.x[:3], atol=0.05)
    assert found.result.uniform_floor == pytest.approx(np.log(4.0))
    assert found.result.train.confusion is not None
    start = next(moment for moment in found.result.history if moment.round == 0)
    assert start.train.mean == pytest.approx(np.log(4.0), rel=1e-6)


def test_numbers_labels_and_intervals_have_their_figures(workspace: Path) -> None:
    outcome = simulate(plan_of("squared"), workspace)
    losses = np.concatenate([site["test"].values for site in outcome.losses.values()])
    assert outcome.result.test is not None
    metrics = outcome.result.test.metrics
    assert metrics is not None
    assert metrics["mean_squared_error"] == pytest.approx(losses.mean(), rel=1e-12)
    assert metrics["mean_squared_error"] == pytest.approx(outcome.result.test.mean, rel=1e-12)
    assert outcome.result.plan is not None
    assert outcome.result.plan.loss == "squared error in squared units of the target"
    labels = simulate(plan_of("multi_label"), workspace).result.trained.metrics
    times = simulate(plan_of("survival"), workspace).result.trained.metrics
    assert labels is not None
    assert times is not None
    assert isinstance(labels["label_recall"], tuple)
    assert len(labels["label_recall"]) == len(LABELS)
    assert isinstance(times["interval_at_risk"], tuple)
    assert len(times["interval_at_risk"]) == len(ENDS)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["squared", "huber", "pinball", "binary", "multi_label", "survival"])
def test_training_comes_down_to_the_optimum_of_a_conic_solver(workspace: Path, name: str) -> None:
    """One step a round on all records is gradient descent, whose mean iterate has a known distance from the least.

    With steps of length eta |g_t|: f(mean) - f(u) <= (|x_1 - u|^2 + sum |x_t+1 - x_t|^2) / (2 eta T) for every u
    (Zinkevich 2003). The smoothed objective is above the plan's own by at most (1 - epsilon) / rho times its gap.
    """
    rounds, rate = 500, {"squared": 0.0125, "huber": 0.125, "pinball": 0.125}.get(name, 0.62)
    # The worst fifth of a noisy class can hardly be served better than by a guess, which would prove nothing here.
    rho, eps = {"binary": (0.5, 0.5), "multi_label": (0.8, 0.5), "survival": (0.8, 0.5)}.get(name, (0.2, 0.1))
    plan = plan_of(
        name, {"test_fraction": 0.0}, objective={"worst_group_size": rho, "tradeoff": eps},
        training={"rounds": rounds, "batch_size": "full", "learning_rate": rate, "output": "average"},
        evaluation={"every": rounds}, secure_aggregation={"mode": "off"},
    )  # fmt: skip
    sites = load_federation(plan, workspace)
    schema = next(iter(sites.values())).train.schema
    start = bound(plan, schema, workspace)
    run = TrainingRun(plan, start.layout, schema, start.vector)
    model = flat_model(plan, schema, torch.device("cpu"), workspace)
    cohort = LoopClients({site: TrainingClient(plan, site, own, model) for site, own in sites.items()})

    def place() -> np.ndarray:
        """Steps are made in deviations of the target, whatever the unit of the threshold is."""
        return np.append(run.model.vector, run.model.threshold / loss_unit(plan.task.loss, run.scaling))

    path = [place()]

    def note(progress: Progress) -> None:
        if progress.purpose.value == "training":
            path.append(place())

    play(run, cohort, None, note)
    steps = np.diff(np.array(path), axis=0)
    assert len(steps) == rounds
    assert min(point[-1] for point in path) > 0.0  # nothing was projected
    scaling = run.scaling
    assert scaling is not None
    columns_of, unit = of_features(plan.task.loss, scaling), loss_unit(plan.task.loss, scaling)
    features = np.concatenate([own.train.features for own in sites.values()])
    targets = np.concatenate([own.train.labels for own in sites.values()])
    solver = solved_likelihood if name in LIKELIHOODS else solved
    optimum, best = solver(name, (features - columns_of.mean) / columns_of.scale, targets, rho, eps)
    gap = objective_of(plan, unit).smoothing.gap * (1.0 - eps) / rho
    # The solver works in the target's own unit, the steps in deviations.
    target = target_scaling(plan.task.loss, scaling)
    best[:-1] /= target.deviation
    best[-2] -= target.middle / target.deviation
    best[-1] /= unit
    distance = unit * float(np.square(path[0] - best).sum() + np.square(steps).sum())
    found = np.concatenate([site["train"].values for site in cohort.losses(run.model)])
    value = float(rcvar(found, rho, eps))
    assert optimum - SOLVED <= value <= optimum + gap + distance / (2.0 * rate * rounds) + SOLVED
    # The bound is of use: the model before training is far outside of it.
    if name in LIKELIHOODS:
        logits, answers, seen = likelihood_terms(name, targets)
        untrained = (seen * np.log(2.0)).sum(axis=1) / LIKELIHOODS[name]
        assert gap + distance / (2.0 * rate * rounds) < float(rcvar(untrained, rho, eps)) - optimum
        assert logits == answers.shape[1]
        return
    untrained = np.square(targets) if name == "squared" else np.abs(targets) * 0.2
    assert gap + distance / (2.0 * rate * rounds) < 0.5 * float(rcvar(untrained, rho, eps))


@pytest.mark.slow
def test_ordered_classes_and_their_worst_half_come_within_a_hundredth_of_a_conic_optimum(workspace: Path) -> None:
    """Training closes 99 % of the distance between the model before it and the optimum, smoothing left aside."""
    rho, eps, rounds = 0.5, 0.5, 750
    plan = plan_of(
        "ordinal", {"test_fraction": 0.0, "standardize": "none"},
        objective={"worst_group_size": rho, "tradeoff": eps},
        training={"rounds": rounds, "batch_size": "full", "learning_rate": 2.0, "output": "last"},
        evaluation={"every": rounds, "group_sizes": [rho, 1.0]}, secure_aggregation={"mode": "off"},
    )  # fmt: skip
    table = columns()
    features, grades = np.stack([table[name] for name in COLUMNS], axis=1), table["grade"].astype(int)
    optimum = solved_grades(features, grades, rho, eps)
    train = simulate(plan, workspace).result.train
    assert train is not None
    worst = train.by_group_size[str(rho)].worst
    assert worst is not None
    value = (1.0 - eps) * worst + eps * train.mean
    gap = objective_of(plan).smoothing.gap * (1.0 - eps) / rho
    # Before training every class is as likely as another, for all records.
    assert optimum - SOLVED <= value <= optimum + gap + 0.01 * (np.log(4.0) - optimum)


def solved_grades(features: np.ndarray, grades: np.ndarray, rho: float, eps: float) -> float:
    """Return the least objective of proportional odds, by a program of exponential cones.

    A grade between two borders, whose logits are a above b, has the loss log(1 + e^-a) + log(1 + e^b) + s with
    e^-s + e^(b - a) = 1; the first and the last grade lack a border and two of the terms.
    """
    last = int(grades.max())
    slopes, borders, level = cvxpy.Variable(features.shape[1]), cvxpy.Variable(last), cvxpy.Variable()
    between = (grades > 0) & (grades < last)
    lift = cvxpy.Variable(int(between.sum()))
    scores = features @ slopes
    below = scores - np.eye(last)[np.maximum(grades - 1, 0)] @ borders
    above = scores - np.eye(last)[np.minimum(grades, last - 1)] @ borders
    each = cvxpy.multiply(grades > 0, cvxpy.logistic(-below)) + cvxpy.multiply(
        grades < last, cvxpy.logistic(above)
    )
    losses = each + np.eye(len(grades))[:, between] @ lift
    apart = cvxpy.exp(-lift) + cvxpy.exp((above - below)[np.flatnonzero(between)]) <= 1.0
    tail = level + cvxpy.sum(cvxpy.pos(losses - level)) / (rho * len(grades))
    program = cvxpy.Problem(cvxpy.Minimize((1.0 - eps) * tail + eps * cvxpy.sum(losses) / len(grades)), [apart])
    program.solve(solver=cvxpy.CLARABEL)
    assert program.status == cvxpy.OPTIMAL
    return float(program.value)


LIKELIHOODS = {"binary": 1, "multi_label": len(LABELS), "survival": 1}
"""Losses that are sums of logistic ones, by what the sum is divided by."""


def likelihood_terms(name: str, targets: np.ndarray) -> tuple[int, np.ndarray, np.ndarray]:
    """Return how many logits there are, and of each record's: the answer 0 or 1, and whether it counts at all."""
    if name != "survival":
        answers = targets.reshape(len(targets), -1).astype(np.float64)
        return answers.shape[1], answers, np.ones_like(answers)
    answers, seen = np.zeros((len(targets), len(ENDS))), np.zeros((len(targets), len(ENDS)))
    for record, (time, event) in enumerate(targets):
        for place, end in enumerate(ENDS):
            begin = ENDS[place - 1] if place else -np.inf
            answers[record, place] = float(event == 1 and begin < time <= end)
            survived = time > end if event == 1 else time >= end
            seen[record, place] = max(answers[record, place], float(survived))
    return len(ENDS), answers, seen


def solved_likelihood(
    name: str, features: np.ndarray, targets: np.ndarray, rho: float, eps: float
) -> tuple[float, np.ndarray]:
    """Return the same as `solved` for a loss that is a sum of logistic ones: a program of exponential cones."""
    logits, answers, seen = likelihood_terms(name, targets)
    weights, bias, level = cvxpy.Variable((features.shape[1], logits)), cvxpy.Variable(logits), cvxpy.Variable()
    scores = features @ weights + np.ones((len(targets), 1)) @ cvxpy.reshape(bias, (1, logits), order="C")
    each = cvxpy.multiply(seen, cvxpy.logistic(scores)) - cvxpy.multiply(seen * answers, scores)
    losses = cvxpy.sum(each, axis=1) / LIKELIHOODS[name]
    tail = level + cvxpy.sum(cvxpy.pos(losses - level)) / (rho * len(targets))
    program = cvxpy.Problem(cvxpy.Minimize((1.0 - eps) * tail + eps * cvxpy.sum(losses) / len(targets)))
    program.solve(solver=cvxpy.CLARABEL)
    assert program.status == cvxpy.OPTIMAL
    return float(program.value), np.concatenate([weights.value.T.ravel(), bias.value, [float(level.value)]])


def solved(
    name: str, features: np.ndarray, targets: np.ndarray, rho: float, eps: float
) -> tuple[float, np.ndarray]:
    """Return the least objective of a linear model by a conic program, and its weights, bias and threshold."""
    weights, bias, level = cvxpy.Variable(features.shape[1]), cvxpy.Variable(), cvxpy.Variable()
    missing = targets - features @ weights - bias
    losses = {
        "squared": cvxpy.square(missing),
        "huber": 0.5 * cvxpy.huber(missing, 0.5),
        "pinball": cvxpy.maximum(0.8 * missing, -0.2 * missing),
    }[name]
    count = len(targets)
    tail = level + cvxpy.sum(cvxpy.pos(losses - level)) / (rho * count)
    program = cvxpy.Problem(cvxpy.Minimize((1.0 - eps) * tail + eps * cvxpy.sum(losses) / count))
    program.solve(solver=cvxpy.CLARABEL)
    assert program.status == cvxpy.OPTIMAL
    return float(program.value), np.concatenate([weights.value, [float(bias.value), float(level.value)]])


# ------------------------------------------------------------------ the range of the histogram


@pytest.mark.parametrize("name", TASKS)
def test_a_plan_is_accepted_without_a_range_exactly_where_one_follows_from_the_loss(name: str) -> None:
    loss = plan_of(name).task.loss
    open_ended = loss.model_copy(update={"target_range": None}) if hasattr(loss, "target_range") else loss
    # Two classes and one label, of data that nobody has read.
    for own in (loss, open_ended):
        assert has_natural_range(own) == (natural_range(own, classes=2, labels=1) is not None)


def ranged(workspace: Path, min_group: int) -> tuple[SimulationOutcome, int]:
    """Return a run whose range is small, and how many of its test losses are at its end or above."""
    given = {"loss_range": 0.5, "min_group": min_group}
    outcome = simulate(plan_of("squared", {"loss": "squared"}, evaluation=given), workspace)
    values = np.concatenate([site["test"].values for site in outcome.losses.values()])
    return outcome, int((values >= 0.5).sum())


@pytest.mark.usefixtures("undrawn")
def test_losses_above_the_range_are_told_unless_they_are_too_few(workspace: Path) -> None:
    outcome, above = ranged(workspace, 5)
    result = outcome.result
    assert result.test is not None
    assert 5 <= above < result.test.n
    assert result.test.above_range == above / result.test.n
    share = f"{above / result.test.n:.1%}"
    (warning,) = (words for words in result_warnings(result) if "loss_range" in words)
    assert f"{share} of the test losses" in warning
    said = f"osses at or above evaluation.loss_range {share}"
    assert said in str(by_group_size(result).caption)
    assert said in run_page({"result.json": result})
    # What a deployment knows too, from its sums alone.
    assert outcome.evaluation.splits["test"].counts[-1] == above
    outcome, same = ranged(workspace, above + 1)
    assert same == above
    assert outcome.result.test is not None
    assert outcome.result.test.above_range is None


def test_a_loss_without_any_bound_asks_for_one_and_a_declared_range_serves(workspace: Path) -> None:
    with pytest.raises(ValidationError, match=r"evaluation\.loss_range\n  is not stated") as fault:
        plan_of("squared", {"loss": "squared", "standardize": "none"})
    (found,) = fault.value.errors()
    assert "task.loss.target_range" in found["ctx"]["remedy"]
    assert "`fedfair simulate` tells how many losses are above it" in found["ctx"]["remedy"]
    plan = plan_of("squared", {"loss": "squared"}, evaluation={"loss_range": 25.0})
    assert simulate(plan, workspace).evaluation.loss_range == 25.0
    within = plan_of("pinball", {"loss": {"name": "pinball", "quantile": 0.8, "target_range": [-20, 20]}})
    # 0.8 of an error of 40.
    assert simulate(within, workspace).evaluation.loss_range == pytest.approx(32.0)


@pytest.mark.parametrize("name", ["squared", "huber", "pinball"])
def test_targets_so_wide_that_their_losses_cannot_be_summed_are_refused(name: str) -> None:
    with pytest.raises(ValidationError, match=r"task\.loss.*\n.*more than can be summed"):
        plan_of(name, {"loss": {"name": name, "target_range": [-1e200, 1e200]}})


def test_a_model_worse_than_the_mean_target_is_told_so_unless_it_predicts_a_quantile(workspace: Path) -> None:
    slow = {"rounds": 1, "learning_rate": 1e-6, "threshold_init": 0.0, "server_optimizer": {"name": "sgd"}}
    table = columns()["amount"] + 15.0
    text = (workspace / "table.csv").read_text().splitlines()
    place = text[0].split(",").index("amount")
    rows = [line.split(",") for line in text[1:]]
    for row, amount in zip(rows, table.tolist(), strict=True):
        row[place] = repr(amount)
    (workspace / "table.csv").write_text("\n".join([text[0], *map(",".join, rows)]) + "\n")
    wide = {"target_range": [-50, 50]}
    told = {
        name: [
            words
            for words in result_warnings(
                simulate(plan_of(name, {"loss": {"name": name, **wide}}, training=slow), workspace).result
            )
            if "R²" in words
        ]
        for name in ("squared", "huber", "pinball")
    }
    assert [len(found) for found in told.values()] == [1, 1, 0]
