"""The losses of single records against values worked by hand, slow formulas, and differences."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from fedfair.errors import PlanError, TrainingError
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.losses import Loss
from fedfair.plan.task import TaskSection
from fedfair.plan.task_outputs import with_outputs
from fedfair.training.record_loss import RecordLoss, record_loss, trial_targets

COLUMNS = (3,)


def loss_named(spec: object) -> Loss:
    task = {"data": "m:f", "model": {"name": "linear"}, "loss": spec}
    return TaskSection.model_validate(task).loss


def built(spec: object, *, classes: int = 0, targets: tuple[int, ...] = (), folder: Path = Path()) -> RecordLoss:
    loss = loss_named(spec)
    shape = (1, *targets) if len(targets) == 2 else COLUMNS
    schema = with_outputs(loss, FeatureSchema(shape, classes, targets=targets))
    return record_loss(loss, schema, 4.0, folder)


def values(loss: RecordLoss, outputs: object, targets: object) -> list[float]:
    found = loss.per_record(torch.tensor(outputs, dtype=torch.float64), torch.as_tensor(targets))
    return [float(value) for value in found]


# ------------------------------------------------------------------ worked by hand


def test_losses_of_numbers_by_hand() -> None:
    assert values(built("squared"), [[1.0], [-2.0]], [3.0, -2.0]) == [4.0, 0.0]
    loss = built({"name": "huber", "delta": 2.0})
    # 1^2 / 2; 2^2 / 2; 2 (5 - 1).
    assert values(loss, [[0.0], [0.0], [0.0]], [1.0, -2.0, 5.0]) == [0.5, 2.0, 8.0]
    loss = built({"name": "pinball", "quantile": 0.75})
    assert values(loss, [[1.0], [5.0]], [5.0, 1.0]) == [3.0, 1.0]


def test_losses_of_classes_and_labels_by_hand() -> None:
    loss = built("binary", classes=2)
    found = values(loss, [[0.0], [math.log(3.0)], [math.log(3.0)]], [1, 1, 0])
    assert found == pytest.approx([math.log(2.0), math.log(4 / 3), math.log(4.0)], rel=1e-15)
    outputs, targets = [[0.0, math.log(3.0)]], [[1.0, 0.0]]
    whole = math.log(2.0) + math.log(4.0)
    mean = built({"name": "multi_label", "labels": 2}, targets=(2,))
    added = built({"name": "multi_label", "labels": 2, "reduction": "sum"}, targets=(2,))
    assert values(mean, outputs, targets) == pytest.approx([whole / 2], rel=1e-15)
    assert values(added, outputs, targets) == pytest.approx([whole], rel=1e-15)


def test_survival_counts_what_was_survived_and_where_the_event_fell() -> None:
    """Hazards 1/2, 1/4, 3/4 in (0, 1], (1, 2], (2, 5]."""
    loss = built({"name": "survival", "intervals": [1, 2, 5]}, targets=(2,))
    logits = [[0.0, -math.log(3.0), math.log(3.0)]] * 7
    targets = [[0.5, 1], [1.0, 1], [1.5, 1], [1.5, 0], [2.0, 0], [9.0, 0], [9.0, 1]]
    one, two, three = math.log(2.0), math.log(4 / 3), math.log(4.0)
    expected = [
        one,  # the event in the first interval: -log(1/2)
        one,  # an event at the end of an interval is in it
        one + math.log(4.0),  # survived the first, -log(1/4) in the second
        one,  # last seen in the second: only the first was survived
        one + two,  # last seen at the end of the second, which was survived
        one + two + three,  # past all intervals
        one + two + three,  # so is an event after the last of them
    ]
    assert values(loss, logits, np.array(targets, np.float64)) == pytest.approx(expected, rel=1e-14)


# ------------------------------------------------------------------ slow formulas


def test_ordinal_losses_are_differences_of_logistic_functions_and_lose_no_digits() -> None:
    """Chances of being above class 0, 1, 2: 3/4, 1/2, 1/4; so every class has a quarter."""
    loss = built("ordinal", classes=4)
    logits = [[math.log(3.0), 0.0, -math.log(3.0)]] * 4
    assert values(loss, logits, [0, 1, 2, 3]) == pytest.approx([math.log(4.0)] * 4, rel=1e-14)
    loss = built("ordinal", classes=3)
    # s(-40) - s(-41) = e^-40 (1 - 1/e) to 17 digits, where the difference of two numbers near 0 has them all too;
    # s(41) - s(40) is the same, and a difference of two numbers near 1 would be 0.
    expected = 40.0 - math.log(-math.expm1(-1.0))
    found = values(loss, [[-40.0, -41.0], [41.0, 40.0]], [1, 1])
    assert found == pytest.approx([expected, expected], rel=1e-14)
    assert not math.isfinite(values(loss, [[0.0, 1.0]], [1])[0])
    loss, source = built("ordinal", classes=5), np.random.default_rng(6)
    logits = -np.sort(-source.normal(size=(300, 4)) * 2, axis=1)
    targets = source.integers(0, 5, 300)
    reached = np.concatenate([np.ones((300, 1)), 1 / (1 + np.exp(-logits)), np.zeros((300, 1))], axis=1)
    slow = -np.log((reached[:, :-1] - reached[:, 1:])[np.arange(300), targets])
    # The slow difference loses the digits that a small chance has fewer of.
    assert values(loss, logits, targets) == pytest.approx(slow.tolist(), rel=1e-11)
    chances = loss.chances
    assert chances is not None
    assert chances(torch.tensor(logits)).sum(1).numpy() == pytest.approx(np.ones(300))


def slow_survival(logits: list[float], time: float, event: float, ends: list[float]) -> float:
    """The likelihood as a product over the intervals that a record saw, by plain loops."""
    likelihood, begin = 1.0, -math.inf
    for logit, end in zip(logits, ends, strict=True):
        hazard = 1.0 / (1.0 + math.exp(-logit))
        if event and begin < time <= end:
            return -math.log(likelihood * hazard)
        if (event and time > end) or (not event and time >= end):
            likelihood *= 1.0 - hazard
        begin = end
    return -math.log(likelihood)


def test_losses_of_times_by_hand_and_by_a_slow_loop() -> None:
    loss = built({"name": "survival", "intervals": [1, 2]}, targets=(2,))
    assert values(loss, [[3.0, -2.0]], np.array([[0.2, 0.0]])) == [0.0]
    assert values(loss, [[0.0, 5.0]], np.array([[0.0, 1.0]])) == pytest.approx([math.log(2.0)])
    ends, source = [0.5, 1.0, 2.5, 4.0], np.random.default_rng(5)
    loss = built({"name": "survival", "intervals": ends}, targets=(2,))
    logits = source.normal(size=(500, 4)) * 2
    targets = np.stack(
        [source.choice([0.0, 0.3, 0.5, 0.9, 1.0, 2.5, 4.0, 7.0], 500), source.integers(0, 2, 500)], 1
    )
    slow = [slow_survival(list(row), *answer, ends) for row, answer in zip(logits, targets, strict=True)]
    # At most four factors, each right to a few units in the last place.
    assert values(loss, logits, targets) == pytest.approx(slow, rel=1e-12, abs=1e-13)


def test_segmentation_is_the_mean_over_a_records_pixels() -> None:
    loss, source = built("segmentation", classes=3, targets=(4, 5)), torch.Generator().manual_seed(1)
    outputs = torch.randn(2, 3, 4, 5, generator=source, dtype=torch.float64)
    targets = torch.randint(0, 3, (2, 4, 5), generator=source)
    logs = torch.log_softmax(outputs, 1)
    slow = [
        -sum(float(logs[n, targets[n, i, j], i, j]) for i in range(4) for j in range(5)) / 20 for n in range(2)
    ]
    assert loss.per_record(outputs, targets).tolist() == pytest.approx(slow, rel=1e-13)


EVERY = {
    "squared": ("squared", 0, ()), "huber": ({"name": "huber", "delta": 0.3}, 0, ()),
    "pinball": ({"name": "pinball", "quantile": 0.2}, 0, ()), "binary": ("binary", 2, ()),
    "multi_label": ({"name": "multi_label", "labels": 3}, 0, (3,)),
    "survival": ({"name": "survival", "intervals": [0.6, 1.2]}, 0, (2,)),
    "segmentation": ("segmentation", 3, (2, 2)),
}  # fmt: skip


@pytest.mark.parametrize("name", EVERY)
def test_the_gradient_is_the_difference_of_losses_and_of_its_own_record_alone(name: str) -> None:
    spec, classes, targets = EVERY[name]
    loss = built(spec, classes=classes, targets=targets)
    shape = (1, *targets) if len(targets) == 2 else COLUMNS
    schema = with_outputs(loss_named(spec), FeatureSchema(shape, classes, targets=targets))
    outputs = torch.randn(4, *schema.output_shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    answers = trial_targets(loss_named(spec), schema, 4)

    def one(own: Tensor) -> Tensor:
        return loss.per_record(own, answers)

    assert torch.autograd.gradcheck(one, (outputs.requires_grad_(),))
    whole = torch.autograd.functional.jacobian(one, outputs).flatten(2)
    others = whole.abs().sum(2) - torch.diag(whole.abs().sum(2).diagonal())
    assert float(others.max()) == 0.0
    assert bool((one(outputs) >= 0.0).all())


# ------------------------------------------------------------------ a loss of the plan's own


def own(folder: Path, body: str, **more: object) -> RecordLoss:
    name = f"loss_{abs(hash(body)) % 10**8}"
    (folder / "src").mkdir(exist_ok=True)
    (folder / "src" / f"{name}.py").write_text(f"import torch\n\n\ndef cost(outputs, targets):\n    {body}\n")
    return built({"name": f"{name}:cost", **more}, folder=folder)


def test_a_function_of_the_plan_is_called_with_outputs_and_targets(tmp_path: Path) -> None:
    loss = own(tmp_path, "return (outputs[:, 0] - targets).abs()")
    assert values(loss, [[1.0], [4.0]], [3.0, 3.5]) == [2.0, 0.5]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return (outputs[:, 0] - targets).abs().mean()", "of shape () for 2 records"),
        ("return [0.0, 0.0]", "returns list, not a tensor"),
        ("return outputs[:, 0].long()", "torch.int64"),
        ("raise KeyError('x')", "fails: KeyError"),
    ],
)
def test_a_function_with_another_result_is_refused_first(tmp_path: Path, body: str, words: str) -> None:
    with pytest.raises(PlanError) as fault:
        own(tmp_path, body)
    assert words in fault.value.message
    assert "returns losses (records,)" in fault.value.remedy


@pytest.mark.parametrize("body", ["return outputs[:, 0] - targets", "return targets / outputs[:, 0].abs()"])
def test_a_negative_or_infinite_loss_of_a_function_is_one_clear_error(tmp_path: Path, body: str) -> None:
    loss = own(tmp_path, body)
    with pytest.raises(TrainingError, match="negative, NaN or infinite"):
        values(loss, [[0.0], [0.0]], [1.0, 2.0])


def test_where_records_are_protected_an_own_loss_sees_one_record_at_a_time(tmp_path: Path) -> None:
    """This loss divides by the greatest error of the batch: one record would change the gradients of all."""
    body = "return (outputs[:, 0] - targets).abs() / (outputs[:, 0] - targets).abs().max().clamp(min=1.0)"
    mixing = own(tmp_path, body)
    spec = {"name": f"loss_{abs(hash(body)) % 10**8}:cost"}
    schema = with_outputs(loss_named(spec), FeatureSchema(COLUMNS, 0))
    alone = record_loss(loss_named(spec), schema, 4.0, tmp_path, singly=True)
    outputs, targets = [[0.5], [3.0], [9.0]], [0.0, 0.0, 0.0]
    assert values(mixing, outputs, targets) == pytest.approx([0.5 / 9.0, 3.0 / 9.0, 1.0])
    assert values(alone, outputs, targets) == [0.5, 1.0, 1.0]
    none = alone.per_record(torch.empty(0, 1), torch.empty(0))
    assert none.shape == (0,)
