"""The objective as a module: the product's formula in every width, and what an optimiser needs of it."""

import copy
import math
import pickle

import pytest
import torch
from torch import Tensor, nn

from fedfair.errors import DataError, PlanError
from fedfair.fairness.cvar import rcvar
from fedfair.fairness.rcvar import Objective
from fedfair.fairness.rcvar_loss import RCVaRLoss
from fedfair.fairness.smoothing import smoothing
from tests.oracles.exact_rcvar import threshold_gradient

LOSSES = (0.1, 0.4, 0.4, 0.9, 1.3, 2.0, 2.0, 3.5)


def losses(dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.tensor(LOSSES, dtype=dtype, requires_grad=True)


@pytest.mark.parametrize("name", ["zang", "softplus", "quadratic", "chks", "gaussian"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_value_and_gradients_are_those_of_the_products_objective(name: str, dtype: torch.dtype) -> None:
    loss = RCVaRLoss(0.2, 0.1, name, gamma=0.1, threshold=1.1).to(dtype)
    given = losses(dtype)
    value = loss(given)
    value.backward()
    objective = Objective(0.2, 0.1, smoothing(name, 0.1))
    threshold = loss.threshold.detach()
    assert value.dtype == dtype
    assert value.shape == ()
    torch.testing.assert_close(value.detach(), objective.per_sample(given.detach(), threshold).mean())
    assert given.grad is not None
    torch.testing.assert_close(given.grad, objective.weights(given.detach(), threshold) / len(LOSSES))
    assert loss.threshold.grad is not None
    torch.testing.assert_close(
        loss.threshold.grad, threshold_gradient(objective, given.detach(), threshold).mean()
    )


def test_minimised_over_the_threshold_it_is_the_exact_objective_within_the_gap() -> None:
    loss = RCVaRLoss(0.3, 0.2, gamma=0.01).double()
    given = losses(torch.float64).detach()
    steps = torch.optim.LBFGS(loss.parameters(), max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        steps.zero_grad()
        value: Tensor = loss(given)
        value.backward()
        return value

    steps.step(closure)
    exact = rcvar(given.numpy(), 0.3, 0.2)
    gap = 0.8 / 0.3 * loss.objective.smoothing.gap
    assert exact - 1e-12 <= float(loss(given).detach()) <= exact + gap + 1e-9


@pytest.mark.parametrize(("size", "tradeoff"), [(1.0, 0.3), (0.2, 1.0)])
def test_the_plain_mean_is_exact_and_gives_the_threshold_the_gradient_zero(size: float, tradeoff: float) -> None:
    loss, given = RCVaRLoss(size, tradeoff), losses()
    value = loss(given)
    value.backward()
    assert float(value.detach()) == float(given.detach().mean())
    assert loss.threshold.grad is not None
    assert float(loss.threshold.grad) == 0.0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32_under_autocast_too(dtype: torch.dtype) -> None:
    loss = RCVaRLoss(0.2, 0.1)
    given = losses(dtype)
    expected = loss(given.detach().float())
    with torch.autocast("cpu", torch.bfloat16):
        value = loss(given)
    value.backward()
    assert value.dtype == torch.float32
    assert float(value.detach()) == float(expected.detach())
    assert given.grad is not None
    assert given.grad.dtype == dtype


def test_state_copies_and_files_keep_the_threshold_and_the_settings() -> None:
    loss = RCVaRLoss(0.2, 0.1, "softplus", gamma=0.3, threshold=2.5)
    other = RCVaRLoss(0.2, 0.1)
    other.load_state_dict(loss.state_dict())
    assert list(loss.state_dict()) == ["threshold"]
    assert float(other.threshold.detach()) == 2.5
    given = losses().detach()
    for twin in (copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))):  # noqa: S301 - our own bytes
        assert float(twin(given).detach()) == float(loss(given).detach())
        assert twin.threshold is not loss.threshold
    assert "worst_group_size=0.2" in repr(nn.Sequential(loss))


def test_adam_serves_the_worst_tenth_better_than_the_mean_does() -> None:
    features, labels = _mixture()
    fair = _trained(features, labels, RCVaRLoss(0.1, 0.1))
    plain = _trained(features, labels, RCVaRLoss(1.0, 1.0))
    tenth = len(labels) // 10

    def worst(found: Tensor) -> float:
        return float(found.sort(descending=True).values[:tenth].mean())

    assert worst(fair) < 0.8 * worst(plain)


def _mixture() -> tuple[Tensor, Tensor]:
    """Return records of which a tenth lies the other way round in the first column."""
    draw = torch.Generator().manual_seed(0)
    features = torch.randn(400, 2, generator=draw)
    features[:, 1] = 0.0
    features[:40, 1] = 1.0
    labels = ((features[:, 0] > 0) ^ (features[:, 1] > 0)).long()
    return features, labels


def _trained(features: Tensor, labels: Tensor, loss: RCVaRLoss) -> Tensor:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Linear(2, 2)
    adam = torch.optim.Adam([*model.parameters(), *loss.parameters()], lr=0.05)
    for _ in range(300):
        adam.zero_grad()
        value = loss(nn.functional.cross_entropy(model(features), labels, reduction="none"))
        value.backward()
        adam.step()
    with torch.no_grad():
        return nn.functional.cross_entropy(model(features), labels, reduction="none")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (torch.tensor(1.0), r"shape \(\), not one loss for each record"), (torch.ones(2, 3), r"shape \(2, 3\)"),
        (torch.ones(0), r"shape \(0,\)"), (torch.ones(3, dtype=torch.int64), "int64"), ([1.0, 2.0], "list"),
        (torch.ones(2, device="meta"), "on meta, the threshold is on cpu"),
    ],
)  # fmt: skip
def test_what_is_no_loss_for_each_record_is_refused_in_words(given: object, words: str) -> None:
    with pytest.raises(DataError, match=words):
        RCVaRLoss()(given)


def test_thresholds_are_reset_and_moved_by_finite_losses_only() -> None:
    loss = RCVaRLoss(0.25, 0.0)
    loss.reset_threshold(losses())
    assert float(loss.threshold.detach()) == 2.0  # the third of 8 in order, below the worst 2
    assert loss.threshold.requires_grad
    loss = RCVaRLoss(0.2, 0.1)
    value = loss(losses(torch.float64))
    value.backward()
    assert value.dtype == torch.float64
    assert loss.threshold.grad is not None
    assert loss.threshold.grad.dtype == torch.float32
    with pytest.raises(DataError, match="NaN or infinite"):
        RCVaRLoss().reset_threshold(torch.tensor([1.0, math.nan]))


@pytest.mark.parametrize(
    "settings",
    [
        {"worst_group_size": 0.0}, {"worst_group_size": 1.5}, {"tradeoff": -0.1}, {"smoothing": "silu"},
        {"gamma": 0.0}, {"smoothing": smoothing("zang", 0.1), "gamma": 0.2},
    ],
)  # fmt: skip
def test_settings_out_of_range_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(PlanError):
        RCVaRLoss(**settings)  # type: ignore[arg-type]
