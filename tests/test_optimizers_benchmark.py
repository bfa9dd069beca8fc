"""The arithmetic of `benchmarks/optimizers.py`: steps by hand, gradients by differences, optima by an oracle."""

import importlib
import json
import math
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tests.conftest import REPOSITORY
from tests.fork_server import played

FOLDER = REPOSITORY / "benchmarks"


@pytest.fixture(autouse=True)
def _scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    # Scripts import their neighbours by their bare names.
    monkeypatch.syspath_prepend(str(FOLDER))


@pytest.fixture
def reference() -> ModuleType:
    return importlib.import_module("optimizer_reference")


@pytest.fixture
def tables() -> ModuleType:
    return importlib.import_module("optimizer_tables")


def walk(reference: ModuleType, name: str, gradients: list[float], **stated: float) -> list[float]:
    """Return where a single place, from 1 on, is after each gradient."""
    setting = reference.Setting(optimizer=name, **{"rate": 0.5, "first": 0.5, "second": 0.75, **stated})
    z = np.ones((1, 1, 1))
    optimizer, found = reference.OPTIMIZERS[name]([setting], z), []
    for gradient in gradients:
        z = optimizer.step(z, np.full((1, 1, 1), gradient), np.ones(1))
        found.append(float(optimizer.result(z)[0, 0, 0]))
    return found


def test_plain_steps_and_momentum(reference: ModuleType) -> None:
    assert walk(reference, "sgd", [2.0, 1.0]) == [0.0, -0.5]
    assert walk(reference, "averaging", [2.0, 1.0]) == [0.0, -0.5]
    # The sums are 2 and 0.5 * 2 + 1 = 2.
    assert walk(reference, "momentum", [2.0, 1.0]) == [0.0, -1.0]


def test_the_first_step_of_adam_is_the_rate_and_the_second_is_that_of_corrected_means(
    reference: ModuleType,
) -> None:
    # The mean is 0.5 * 1 - 0.5 * 4 = -1.5, over 1 - 0.5^2; the square is 0.75 + 0.25 * 16 = 4.75, over 1 - 0.75^2.
    second = -1.5 / 0.75 / math.sqrt(4.75 / 0.4375)
    assert walk(reference, "adam", [2.0, -4.0], stability=0.0) == pytest.approx([0.5, 0.5 - 0.5 * second])


def test_yogi_moves_its_mean_square_by_the_square_of_the_gradient(reference: ModuleType) -> None:
    # The mean square is 0.25 * 4 = 1, then 1 + 0.25 * 16 = 5, then 5 - 0.25 * 1: the square was below it.
    mean = [1.0, -1.5, -0.25]
    square = [1.0, 5.0, 4.75]
    expected, z = [], 1.0
    for at in range(3):
        z -= 0.5 * mean[at] / (1.0 - 0.5 ** (at + 1)) / math.sqrt(square[at] / (1.0 - 0.75 ** (at + 1)))
        expected.append(z)
    assert walk(reference, "yogi", [2.0, -4.0, 1.0], stability=0.0) == pytest.approx(expected)


def test_amsgrad_remembers_its_largest_square(reference: ModuleType) -> None:
    # Corrected squares: 4 at first, then (0.75 + 0.25 * 0.01) / 0.4375, which is less.
    expected = 0.5 - 0.5 * (0.55 / 0.75) / 2.0
    assert walk(reference, "amsgrad", [2.0, 0.1], stability=0.0)[1] == pytest.approx(expected)


def test_schedule_free_returns_the_mean_of_its_fast_points(reference: ModuleType) -> None:
    # The fast point: 1 - 0.5, then + 0.5 * 4 / sqrt(4.75 / 0.4375).
    fast = 0.5 + 0.5 * 4.0 / math.sqrt(4.75 / 0.4375)
    assert walk(reference, "schedule-free", [2.0, -4.0], stability=0.0) == pytest.approx([0.5, (0.5 + fast) / 2.0])


def test_d_adaptation_grows_its_distance_from_the_second_step_on(reference: ModuleType) -> None:
    distance, root, total, product, mean, square, z, expected = 1e-6, math.sqrt(0.75), 0.0, 0.0, 0.0, 0.0, 1.0, []
    for gradient in (2.0, 3.0):
        mean = 0.5 * mean + 0.5 * distance * gradient
        square = 0.75 * square + 0.25 * gradient**2
        product = root * product + (1 - root) * distance * gradient * total / math.sqrt(square)
        total = root * total + (1 - root) * distance * gradient
        z -= mean / math.sqrt(square)
        expected.append(z)
        distance = max(distance, product / ((1 - root) * abs(total)))
    found = walk(reference, "d-adaptation", [2.0, 3.0], stability=0.0, rate=1.0)
    assert found == pytest.approx(expected, abs=1e-15)


def test_prodigy_steps_by_its_distance(reference: ModuleType) -> None:
    distance, root, total, product, mean, square, z, expected = 1e-6, math.sqrt(0.75), 0.0, 0.0, 0.0, 0.0, 1.0, []
    for gradient in (2.0, 3.0, 1.0):
        mean = 0.5 * mean + 0.5 * distance * gradient
        square = 0.75 * square + 0.25 * (distance * gradient) ** 2
        product = root * product + (1 - root) * distance**2 * gradient * (1.0 - z)
        total = root * total + (1 - root) * distance**2 * gradient
        held, distance = distance, max(distance, product / abs(total))
        z -= held * mean / math.sqrt(square)
        expected.append(z)
    found = walk(reference, "prodigy", [2.0, 3.0, 1.0], stability=0.0, rate=1.0)
    assert found == pytest.approx(expected, abs=1e-15)


def test_schedules_begin_at_the_rate_and_end_above_zero(reference: ModuleType) -> None:
    of = reference.scheduled
    assert [of("linear", 0.0, number, 4) for number in (1, 2, 3, 4)] == [1.0, 0.75, 0.5, 0.25]
    assert [of("constant", 0.0, number, 4) for number in (1, 4)] == [1.0, 1.0]
    assert of("cosine", 0.0, 3, 4) == pytest.approx(0.5)
    assert of("smoothstep", 0.0, 2, 4) == 0.75**2 * 1.5
    # Half of the rounds warm up: a third, two thirds, then all of it.
    assert [of("linear", 0.5, number, 4) for number in (1, 2, 3, 4)] == pytest.approx([1 / 3, 2 / 3, 1.0, 0.5])


def made(tables: ModuleType, sites: int, *, by_class: bool = False) -> object:
    source = np.random.default_rng(3)
    labels = np.arange(30) % 3
    features = source.standard_normal((30, 4)) + labels[:, None]
    return tables._from_arrays("made", features, labels, sites=sites, by_class=by_class)


@pytest.mark.parametrize("hidden", [None, 3])
def test_gradients_are_those_of_the_smoothed_objective(
    reference: ModuleType, tables: ModuleType, hidden: int | None
) -> None:
    settings = [reference.Setting(rho=0.3, gamma=0.2), reference.Setting(rho=0.5, smoothing="softplus", gamma=0.3)]
    runs = reference.Runs(made(tables, 2), settings, [0], rounds=1, local_steps=1, batch=None, hidden=hidden)
    source = np.random.default_rng(1)
    z = source.normal(0.0, 0.5, runs.z.shape)
    z[:, -1] = 0.9
    features, labels = runs.table.pooled
    features, labels, weights = features[None], labels[None], np.full((1, len(labels)), 1.0 / len(labels))

    def objective(point: np.ndarray, at: int) -> float:
        logits = runs.model.logits(point[0, :-1], features[0])[0][:, :, at]
        losses = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(logits)), labels[0]]
        gamma, rho, margin = settings[at].gamma, settings[at].rho, losses - point[0, -1, at]
        zang = np.where(abs(margin) < gamma / 2, (margin + gamma / 2) ** 2 / (2 * gamma), np.maximum(margin, 0.0))
        plus = zang if at == 0 else gamma * np.logaddexp(0.0, margin / gamma)
        return float((0.99 * (point[0, -1, at] + plus / rho) + 0.01 * losses).mean())

    found = runs.gradient(z, features, labels, weights)
    for at in range(2):
        for place in range(z.shape[1]):
            step = np.zeros_like(z)
            step[0, place, at] = 1e-6
            slope = (objective(z + step, at) - objective(z - step, at)) / 2e-6
            assert found[0, place, at] == pytest.approx(slope, abs=1e-7)


def descended(reference: ModuleType, table: object, **stated: object) -> np.ndarray:
    """Return z after 20 rounds of FedAvg with full batches and one or more local steps."""
    steps = stated.pop("local_steps", 1)
    setting = reference.Setting(
        rho=0.4, gamma=0.2, optimizer="averaging", rate=1.0, schedule="constant", local_schedule="constant",
        local_rate=0.1, warm_up=0.0, **stated,
    )  # fmt: skip
    rounds = 20 // steps
    runs = reference.Runs(table, [setting], [0], rounds=rounds, local_steps=steps, batch=None)
    for number in range(1, rounds + 1):
        runs.take_round(number)
    return runs.z[0, :, 0]


def test_one_full_step_of_any_split_is_a_step_on_the_pooled_records(
    reference: ModuleType, tables: ModuleType
) -> None:
    alone = descended(reference, made(tables, 1))
    for split in (made(tables, 3), made(tables, 3, by_class=True)):
        np.testing.assert_allclose(descended(reference, split), alone, rtol=0.0, atol=1e-12)


def test_several_steps_of_one_site_are_as_many_pooled_steps(reference: ModuleType, tables: ModuleType) -> None:
    alone = made(tables, 1)
    several = descended(reference, alone, local_steps=5, threshold_rate=0.05)
    np.testing.assert_allclose(several, descended(reference, alone, threshold_rate=0.05), rtol=0.0, atol=1e-12)


def test_the_worst_mean_counts_a_fraction_of_a_record(tables: ModuleType) -> None:
    losses = np.array([[1.0, 5.0], [4.0, 5.0], [2.0, 5.0]])
    assert tables.worst_mean(losses, 0.5).tolist() == pytest.approx([(4.0 + 0.5 * 2.0) / 1.5, 5.0])
    assert tables.worst_mean(losses, 1.0).tolist() == pytest.approx([7.0 / 3.0, 5.0])


@pytest.mark.parametrize(("rho", "epsilon"), [(0.1, 0.01), (0.2, 0.1), (0.3, 0.01), (0.5, 0.0)])
def test_optima_are_those_of_a_convex_solver(tables: ModuleType, rho: float, epsilon: float) -> None:
    optima = json.loads((REPOSITORY / "tests" / "vectors" / "bc10.json").read_text())["optima"]
    expected = next(one["objective"] for one in optima if (one["rho"], one["eps"]) == (rho, epsilon))
    held = tables.TABLES["bc10"]("bc10", Path())
    found = tables.solve(*held.pooled, held.classes, rho, epsilon)
    # The oracle is known to 5e-7. The solver stops at a gap of 2e-4 of the value, and proves it.
    assert expected - 1e-6 <= found.value <= expected + 1e-5 + 2e-4 * expected
    assert expected - 2e-5 - 4e-4 * expected <= found.lower <= expected + 1e-6


@pytest.mark.slow
def test_the_script_resumes_and_prints_a_table(tmp_path: Path) -> None:
    cells = tmp_path / "cells.jsonl"
    command = [
        str(FOLDER / "optimizers.py"), "--data", "wine", "--methods", "default", "--sizes", "0.3",
        "--seeds", "2", "--rounds", "5", "--cache", str(tmp_path / "cache"), "--cells", str(cells),
    ]  # fmt: skip

    def output(*more: str) -> str:
        done = played([*command, *more], tmp_path)
        assert done.returncode == 0, done.stdout
        return done.stdout

    first = json.loads(output())
    assert first["benchmark"] == "optimizers"
    assert [len(one["last"]) for one in first["cells"]] == [2]
    assert first["cells"][0]["last"][0] < first["cells"][0]["start"] == pytest.approx(math.log(3))
    output("--scale", "1", "3")
    assert [json.loads(line)["scale"] for line in cells.read_text().splitlines()] == [1.0, 3.0]
    table = output("--table").splitlines()
    assert table[2] == "| method | wine | pass |"
    assert [line.split(" | ")[0] for line in table[4:]] == ["| default", "| default, rate x 3"]
