"""The gradient that is written down is the one that autograd finds."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from fedfair.simulation.vectorised.layers import backward, cross_entropy, forward, layers_in
from fedfair.training.flat_model import FlatModel
from fedfair.training.models import mlp

MEMBERS, BATCH, COLUMNS, CLASSES, RATE = 3, 5, 4, 3, 0.1

# A gradient here is a sum of at most MEMBERS * BATCH * 8 products of numbers of order one, each sum at two orders.
CLOSE = {"rtol": 1e-12, "atol": 1e-14}


def drawn(hidden: tuple[int, ...]) -> tuple[FlatModel, Tensor, Tensor, Tensor]:
    torch.manual_seed(1)
    model = FlatModel(mlp(COLUMNS, hidden, CLASSES).double(), torch.float64)
    features = torch.randn(MEMBERS, BATCH, COLUMNS, dtype=torch.float64)
    labels = torch.randint(CLASSES, (MEMBERS, BATCH))
    return model, features, labels, torch.rand(MEMBERS, BATCH, dtype=torch.float64)


def gradient_by_autograd(model: FlatModel, features: Tensor, labels: Tensor, coefficients: Tensor) -> Tensor:
    model.zero_gradient()
    losses = functional.cross_entropy(model(features), labels, reduction="none")
    torch.autograd.backward(losses, coefficients)
    return model.gradient.clone()


def descended(model: FlatModel, flat: Tensor, moved: Tensor, *batch: Tensor) -> None:
    features, labels, coefficients = batch
    layers = layers_in(flat, model.layout)
    inputs, logits = forward(layers, features)
    _, error = cross_entropy(logits, labels)
    backward(layers, inputs, error * coefficients.unsqueeze(-1), layers_in(moved, model.layout), RATE)


@pytest.mark.parametrize("hidden", [(), (8,), (8, 4), tuple([2] * 11)])
def test_every_sites_own_step_is_autograds(hidden: tuple[int, ...]) -> None:
    model, *batch = drawn(hidden)
    own = model.flat + 0.1 * torch.randn(MEMBERS, len(model.flat), dtype=torch.float64)
    expected = own.clone()
    for k in range(MEMBERS):
        model.flat.copy_(own[k])
        expected[k] -= RATE * gradient_by_autograd(model, *(part[k] for part in batch))
    descended(model, own, own, *batch)
    torch.testing.assert_close(own, expected, **CLOSE)


@pytest.mark.parametrize("hidden", [(), (8, 4)])
def test_a_shared_step_is_the_sum_over_all_sites(hidden: tuple[int, ...]) -> None:
    model, *batch = drawn(hidden)
    total = torch.zeros_like(model.flat)
    descended(model, model.flat, total, *batch)
    expected = -RATE * gradient_by_autograd(model, *(part.flatten(0, 1) for part in batch))
    torch.testing.assert_close(total, expected, **CLOSE)


def test_losses_are_cross_entropies_and_survive_logits_of_a_thousand() -> None:
    logits = torch.tensor([[[1000.0, 0.0], [-1000.0, 0.0]]], dtype=torch.float64)
    losses, gradient = cross_entropy(logits, torch.tensor([[0, 0]]))
    assert losses.tolist() == [[0.0, 1000.0]]
    assert gradient.tolist() == [[[0.0, 0.0], [-1.0, 1.0]]]
