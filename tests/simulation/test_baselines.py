import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from fedfair.fairness.rcvar import Objective
from fedfair.fairness.smoothing import smoothing
from fedfair.plan.learning_rates import LearningRates
from fedfair.training.flat_model import FlatModel
from fedfair.training.local_sgd import Batch, LocalSteps, loss_function
from fedfair.training.loss_weightings.fedavg import equal_coefficients
from fedfair.training.loss_weightings.fedsrcvar import tail_weighting

NAMES = ["softplus", "zang", "quadratic", "chks", "gaussian"]


def objective(rho: float, eps: float, name: str = "softplus", gamma: float = 0.05) -> Objective:
    return Objective(rho, eps, smoothing(name, gamma))


@settings(deadline=None, max_examples=30)
@given(
    losses=st.lists(st.floats(0.0, 12.0), min_size=1, max_size=40), threshold=st.floats(0.0, 6.0),
    rho=st.floats(0.02, 1.0), eps=st.floats(0.0, 1.0), name=st.sampled_from(NAMES),
)  # fmt: skip
def test_coefficients_hold_both_gradients_of_the_smoothed_objective(
    losses: list[float], threshold: float, rho: float, eps: float, name: str
) -> None:
    stated = objective(min(rho, 0.999), min(eps, 0.999), name)
    values = torch.tensor(losses, dtype=torch.float64, requires_grad=True)
    level = torch.tensor(threshold, dtype=torch.float64, requires_grad=True)
    torch.autograd.backward(stated.per_sample(values, level).mean())
    coefficients = tail_weighting(stated)(values.detach(), level.detach())
    assert values.grad is not None
    assert level.grad is not None
    # A dozen roundings of numbers of the size of 1 / rho <= 50; chks and gaussian differentiate a difference of
    # numbers of the size of loss / gamma <= 240.
    torch.testing.assert_close(coefficients, values.grad, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(1.0 - coefficients.sum(), level.grad, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_one_weighted_backward_pass_through_a_network_is_the_whole_gradient(name: str) -> None:
    torch.manual_seed(3)
    network = nn.Sequential(nn.Linear(7, 16), nn.ReLU(), nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 4)).double()
    features, labels = torch.randn(50, 7, dtype=torch.float64), torch.randint(4, (50,))
    stated = objective(0.2, 0.1, name)

    level = torch.tensor(1.2, dtype=torch.float64, requires_grad=True)
    losses = functional.cross_entropy(network(features), labels, reduction="none")
    torch.autograd.backward(stated.per_sample(losses, level).mean())
    expected = torch.cat([parameter.grad.flatten() for _, parameter in sorted(network.named_parameters())])
    network.zero_grad(set_to_none=True)

    model = FlatModel(network, torch.float64)
    before = model.flat.clone()
    steps = LocalSteps(
        model, loss_function(model, "fp64", compiled=False), tail_weighting(stated), LearningRates(1.0, 1.0)
    )
    moved = steps.descend([Batch(features, labels)], level.detach())
    # Steps of length 1: what was subtracted is the gradient, up to a rounding of weights below 2.
    torch.testing.assert_close(before - model.flat, expected, rtol=1e-9, atol=1e-13)
    assert level.grad is not None
    torch.testing.assert_close(level.detach() - moved, level.grad, rtol=1e-9, atol=1e-13)


def test_weights_of_records_by_hand() -> None:
    coefficients = equal_coefficients(torch.tensor([3.0, 1.0, 4.0, 1.0]), torch.tensor(1.0))
    assert coefficients.tolist() == [0.25] * 4
    # Zang's slope is 0 half a gamma below the threshold and 1 half a gamma above it, so with rho = 1/2 and
    # eps = 1/4: u = (0.25, 0.75 / 0.5 + 0.25) = (0.25, 1.75) and the threshold's gradient is 1 - mean(u) = 0.
    coefficients = tail_weighting(objective(0.5, 0.25, "zang"))(torch.tensor([0.1, 0.9]), torch.tensor(0.5))
    assert coefficients.tolist() == pytest.approx([0.125, 0.875], abs=1e-7)
    assert 1.0 - float(coefficients.sum()) == pytest.approx(0.0, abs=1e-7)
    losses = torch.tensor([0.2, 2.0])
    tail_weighting(objective(0.3, 0.1))(losses, torch.tensor(0.5))
    assert losses.tolist() == pytest.approx([0.2, 2.0])
    coefficients = tail_weighting(objective(0.1, 0.01))(torch.tensor([1e6, 0.0]), torch.tensor(10.0))
    assert (2 * coefficients).tolist() == pytest.approx([0.99 / 0.1 + 0.01, 0.01], rel=1e-6)
