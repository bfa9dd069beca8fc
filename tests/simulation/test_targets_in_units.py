"""A target in any unit is trained as its deviations are: the two runs are one, but for the unit of every loss.

The oracle is the run on (x - mean) / deviation and (y - mean) / deviation, which is scaled by 0 and 1.
"""

import functools
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError
from scipy.optimize import linprog
from sklearn.datasets import load_diabetes
from sklearn.metrics import r2_score

from fedfair.aggregation.target_scaling import TargetScaling, loss_unit, target_scaling
from fedfair.plan.losses import HuberLoss, Loss, PinballLoss, SquaredLoss, least_explained
from fedfair.plan.schema import Plan
from fedfair.report.plan_review import plan_review
from fedfair.simulation.simulate import SimulationOutcome, simulate
from tests.plans import NAMES, Section, over, untuned

COLUMNS = tuple(f"x{place}" for place in range(10))


@functools.cache
def diabetes(*, scaled: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Return 442 records and what is predicted of them: a number from 25 to 346."""
    found = load_diabetes(scaled=scaled)
    return found.data, found.target


def write(folder: Path, features: np.ndarray, targets: np.ndarray) -> Path:
    rows = np.column_stack([features, targets]).tolist()
    lines = [",".join((*COLUMNS, "y")), *(",".join(map(repr, row)) for row in rows)]
    folder.mkdir(exist_ok=True)
    (folder / "table.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def plan_of(loss: Mapping[str, object], task: Section | None = None, **sections: Section) -> Plan:
    table = {"target": "y", "numeric": list(COLUMNS), "train": "table.csv"}
    usual = {
        "data": {"csv": table}, "model": {"name": "linear"}, "loss": loss, "standardize": "secure",
        "partition": {"scheme": "random"},
    }  # fmt: skip
    return Plan.model_validate(untuned(NAMES, **over({"task": {**usual, **(task or {})}}, **sections)))


LOSSES: Mapping[str, Mapping[str, object]] = {
    "squared": {"name": "squared"},
    "huber": {"name": "huber", "delta": 60.0},
    "pinball": {"name": "pinball", "quantile": 0.7},
}
RANGES = {"squared": 60_000.0, "huber": 10_000.0, "pinball": 200.0}
STEPS: Mapping[str, Mapping[str, object]] = {
    "avg": {"server_optimizer": {"name": "sgd"}},
    "sgd": {"server_optimizer": {"name": "sgd", "learning_rate": 0.2}},
    "momentum": {"server_optimizer": {"name": "momentum", "learning_rate": 0.02}}, "adam": {},
    "yogi": {"server_optimizer": {"name": "yogi", "learning_rate": 0.1}},
    "variates": {"control_variates": True, "local_steps": 3, "learning_rate": 0.02},
    "own": {"algorithm": "localbpf", "server_optimizer": None, "local_steps": 2},
    "qffl": {"algorithm": "qffl", "server_optimizer": None, "options": {"loss_power": 0.7}},
    "afl": {"algorithm": "afl", "server_optimizer": None},
    "drfa": {"algorithm": "drfa", "server_optimizer": None, "local_steps": 2},
    "dro": {"algorithm": "dro", "server_optimizer": None}, "bpf": {"algorithm": "bpf", "server_optimizer": None},
}  # fmt: skip


def twins(
    folder: Path, name: str, training: Section, **more: Section
) -> tuple[SimulationOutcome, SimulationOutcome, float]:
    """Return a run in units and the run on deviations, and how many natural units a loss of the latter has."""
    features, targets = diabetes()
    mean, deviation = targets.mean(), targets.std()
    columns = (features - features.mean(0)) / features.std(0)
    stated = LOSSES[name]
    inside = dict(stated)
    if "delta" in inside:
        inside["delta"] = 60.0 / deviation
    unit = deviation if name == "pinball" else deviation**2
    settings = {"rounds": 6, "precision": "fp64", "batch_size": 64, "threshold_init": "quantile", "output": "last"}
    settings |= training
    engine = more.pop("engine", {"engine": "loop"})["engine"]
    found = []
    for part, loss, end, x, y in (
        ("units", stated, RANGES[name], features, targets),
        ("deviations", inside, RANGES[name] / unit, columns, (targets - mean) / deviation),
    ):
        evaluation = {"every": 2, "loss_range": end}
        plan = plan_of(loss, training=settings, evaluation=evaluation, **more)
        found.append(simulate(plan, write(folder / part, x, y), engine=engine))
    return found[0], found[1], unit


def assert_twins(one: SimulationOutcome, other: SimulationOutcome, unit: float) -> None:
    # Means and deviations are sums of 442 numbers, 1e-13 of themselves; 18 steps multiply that by less than 1000.
    np.testing.assert_allclose(one.model.vector, other.model.vector, rtol=0, atol=1e-9)
    assert np.abs(one.model.vector).max() > 1e-3
    assert one.model.threshold == pytest.approx(unit * other.model.threshold, rel=1e-8)
    assert one.result.train is not None
    assert other.result.train is not None
    assert one.result.train.mean == pytest.approx(unit * other.result.train.mean, rel=1e-8)


ENGINES = ("loop", "vectorised")
EACH_PAIR = [
    (name, steps, ENGINES[(first + second) // 2 % 2])
    for first, name in enumerate(LOSSES)
    for second, steps in enumerate(STEPS)
    if (first + second) % 2 == 0
]
"""Every kind of step with a loss of deviations and of squares or both, and every loss in both engines."""


@pytest.mark.parametrize(("name", "steps", "engine"), EACH_PAIR)
def test_a_run_in_units_is_the_run_on_deviations(tmp_path: Path, name: str, steps: str, engine: str) -> None:
    assert_twins(*twins(tmp_path, name, STEPS[steps], engine={"engine": engine}))


@pytest.mark.parametrize(("name", "engine"), [("huber", "vectorised"), ("pinball", "loop")])
def test_noised_steps_are_the_same_in_any_unit_of_a_declared_range(tmp_path: Path, name: str, engine: str) -> None:
    """(y - 200) / 100 lies in the middle of its range as y does, so that both runs place the same numbers."""
    features, targets = diabetes(scaled=True)
    unit = 100.0 if name == "pinball" else 100.0**2
    found = []
    for part, y, ends, delta in (
        ("units", targets, [0, 400], 60.0),
        ("hundreds", (targets - 200.0) / 100.0, [-2, 2], 0.6),
    ):
        own = 1.0 if part == "hundreds" else unit
        loss = {**LOSSES[name], "target_range": ends, **({"delta": delta} if name == "huber" else {})}
        csv = {"target": "y", "numeric": list(COLUMNS), "train": "table.csv"}
        csv["ranges"] = {column: [-0.25, 0.25] for column in COLUMNS}
        plan = plan_of(
            loss,
            {"data": {"csv": csv}, "standardize": "ranges"},
            training={"rounds": 3, "precision": "fp64", "batch_size": 64, "threshold_init": 0.5 * own},
            privacy={"sample_level": {"noise_multiplier": 0.1, "clip": 0.5}},
        )
        found.append(simulate(plan, write(tmp_path / part, features, y), engine=engine))
    assert_twins(found[0], found[1], unit)


@pytest.mark.parametrize("name", LOSSES)
def test_a_threshold_that_nobody_stated_begins_at_one_loss_of_the_local_steps(tmp_path: Path, name: str) -> None:
    assert_twins(*twins(tmp_path, name, {"threshold_init": "bound"}))


# ------------------------------------------------------------------ defaults reach the optimum


DEFAULTS: Mapping[str, Loss] = {
    "squared": SquaredLoss(name="squared", target_range=(0.0, 400.0)),
    "huber": HuberLoss(name="huber", target_range=(0.0, 400.0)),
    "wide": HuberLoss(name="huber", delta=100.0, target_range=(0.0, 400.0)),
    "pinball": PinballLoss(name="pinball", target_range=(0.0, 400.0)),
}
TEMPLATE = {"rounds": 300, "batch_size": 256, "threshold_init": "quantile"}
"""What the template of a csv states of training."""


def best_r_squared(name: str, features: np.ndarray, targets: np.ndarray) -> float:
    """Return the R^2 of the least mean loss of a linear model, by a solver of its own for each loss."""
    columns = np.column_stack([np.ones(len(features)), (features - features.mean(0)) / features.std(0)])
    if name == "squared":
        weights = np.linalg.lstsq(columns, targets, rcond=None)[0]
    else:
        # Half the absolute error is a linear programme; Huber's loss of delta 1 is near it where errors are tens.
        count, width = columns.shape
        costs = np.concatenate([np.zeros(2 * width), np.ones(2 * count)])
        signs = np.hstack([columns, -columns, np.eye(count), -np.eye(count)])
        found = linprog(costs, A_eq=signs, b_eq=targets).x
        weights = found[:width] - found[width : 2 * width]
    if name == "wide":
        weights = minimised_huber(columns, targets, 100.0)
    return float(r2_score(targets, columns @ weights))


def minimised_huber(columns: np.ndarray, targets: np.ndarray, delta: float) -> np.ndarray:
    """Return the weights by reweighted least squares, whose fixed point is the optimum of a convex loss."""
    weights = np.linalg.lstsq(columns, targets, rcond=None)[0]
    for _ in range(100):
        trust = np.minimum(1.0, delta / np.maximum(np.abs(targets - columns @ weights), 1e-12))
        weights = np.linalg.solve(columns.T @ (trust[:, None] * columns), columns.T @ (trust * targets))
    return weights


@pytest.mark.parametrize(
    ("name", "optimizer", "tradeoffs"),
    [
        ("squared", "sgd", (1.0, 0.3)), pytest.param("huber", None, (1.0,), marks=pytest.mark.slow),
        ("wide", "sgd", (1.0,)), ("pinball", None, (1.0,)),
    ],
)  # fmt: skip
def test_defaults_come_to_the_optimum_of_the_mean_and_to_a_use_of_the_plans_objective(
    tmp_path: Path, name: str, optimizer: str | None, tradeoffs: tuple[float, ...]
) -> None:
    features, targets = diabetes(scaled=optimizer is not None)
    write(tmp_path, features, targets)
    best = best_r_squared(name, features, targets)
    assert best > 0.5
    training = {**TEMPLATE, "server_optimizer": optimizer and {"name": optimizer}}
    for tradeoff in tradeoffs:
        objective = {"worst_group_size": 0.3, "tradeoff": tradeoff}
        plan = plan_of(DEFAULTS[name].model_dump(mode="json"), training=training, objective=objective)
        found = simulate(plan, tmp_path).result
        assert found.train is not None
        assert found.train.metrics is not None
        explained = found.train.metrics["r_squared"]
        assert isinstance(explained, float)
        # A hundredth of the variance is what the product's defaults are good for, whatever the loss.
        assert explained > (best - 0.01 if tradeoff == 1.0 else 0.4)
        assert found.verdict is not None
        assert found.verdict.state == "fine"


# ------------------------------------------------------------------ where no sum is made


def test_a_declared_range_scales_the_target_where_no_sum_is_made(tmp_path: Path) -> None:
    write(tmp_path, *diabetes(scaled=True))
    csv = {"target": "y", "numeric": list(COLUMNS), "train": "table.csv"}
    csv["ranges"] = {column: [-0.25, 0.25] for column in COLUMNS}
    task = {"data": {"csv": csv}, "standardize": "ranges"}
    objective = {"tradeoff": 1.0}
    plan = plan_of({"name": "squared", "target_range": [0, 400]}, task, training=TEMPLATE, objective=objective)
    found = simulate(plan, tmp_path)
    assert found.scaling is None
    assert target_scaling(plan.task.loss, None) == TargetScaling(200.0, 200.0)
    assert found.result.train is not None
    assert found.result.train.metrics is not None
    assert found.result.train.metrics["r_squared"] > 0.45  # type: ignore[operator]


def test_a_target_in_its_own_unit_is_told_of_and_its_model_is_not_called_fine(tmp_path: Path) -> None:
    write(tmp_path, *diabetes())
    stated = {"name": "squared"}
    evaluation = {"loss_range": 90_000}
    plan = plan_of(stated, {"standardize": "none"}, evaluation=evaluation, training=TEMPLATE)
    told = [
        warning for warning in plan_review(plan).warnings if "the target is trained in its own unit" in warning
    ]
    assert len(told) == 1
    for other in (
        plan_of(stated, evaluation=evaluation),
        plan_of({**stated, "target_range": [0, 400]}, {"standardize": "none"}),
    ):
        assert not any("the target is trained" in warning for warning in plan_review(other).warnings)
    features, targets = diabetes(scaled=True)
    verdict = simulate(plan, write(tmp_path / "scaled", features, targets)).result.verdict
    assert verdict is not None
    assert verdict.state == "worse"
    (fault,) = (finding for finding in verdict.findings if finding.subject == "r_squared")
    assert (fault.reference, fault.limit, fault.certain) == ("target_mean", 0.0, True)
    assert [(remedy.key, remedy.wanted) for remedy in verdict.remedies] == [("task.standardize", "secure")]


@pytest.mark.parametrize(
    ("loss", "least"),
    [
        (SquaredLoss(name="squared"), 0.0), (HuberLoss(name="huber", delta=0.3), -1.0),
        (PinballLoss(name="pinball", quantile=0.9), -9.0), (PinballLoss(name="pinball"), -1.0),
    ],
)  # fmt: skip
def test_no_right_model_explains_less_than_the_least_of_its_loss(loss: Loss, least: float) -> None:
    """The best constant for targets of two values, which come as near to the bound as any."""
    assert least_explained(loss) == pytest.approx(least)
    for share in (0.101, 0.3, 0.49, 0.51, 0.7, 0.899):
        targets = np.repeat([0.0, 100.0], [round(1000 * (1 - share)), round(1000 * share)])
        grid = np.linspace(-5.0, 105.0, 1101)
        errors = targets[:, None] - grid
        losses = {
            "squared": errors**2,
            "huber": np.where(np.abs(errors) < 0.3, errors**2 / 2, 0.3 * (np.abs(errors) - 0.15)),
            "pinball": np.maximum(
                getattr(loss, "quantile", 0.5) * errors, (getattr(loss, "quantile", 0.5) - 1) * errors
            ),
        }[loss.name]
        constant = grid[losses.mean(0).argmin()]
        assert r2_score(targets, np.full(len(targets), constant)) >= least - 1e-3


def test_noise_asks_for_a_range_and_one_loss_is_that_of_one_deviation() -> None:
    csv = {"target": "y", "numeric": list(COLUMNS), "ranges": {column: [-0.25, 0.25] for column in COLUMNS}}
    private = {"sample_level": {"noise_multiplier": 1.0, "clip": 0.5}}
    more = {"privacy": private, "evaluation": {"loss_range": 9.0}}
    with pytest.raises(ValidationError, match="adds noise to the sum of the targets") as fault:
        plan_of({"name": "squared"}, {"data": {"csv": csv}}, **more)
    assert len(fault.value.errors()) == 1
    plan_of({"name": "squared", "target_range": [0, 400]}, {"data": {"csv": csv}}, **more)
    by_hand = {"squared": 200.0**2, "huber": 200.0 - 0.5, "wide": 100.0 * (200.0 - 50.0), "pinball": 100.0}
    assert {name: loss_unit(loss, None) for name, loss in DEFAULTS.items()} == by_hand
