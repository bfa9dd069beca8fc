"""Weighted losses go backward to the bit as torch sends them."""

import pytest
import torch
from torch import Tensor

from fedfair.fairness.weighted_gradient import backward_weighted

WEIGHTS = {
    "ordinary": torch.rand(64, generator=torch.Generator().manual_seed(1)),
    "zeros": torch.zeros(64),
    "not finite": torch.tensor([float("inf"), float("-inf"), float("nan"), 1.0]).repeat(16),
    "beyond the width": torch.full((64,), 3e38),
}


def gradients(weights: Tensor | None, *, by_torch: bool) -> list[Tensor]:
    generator = torch.Generator().manual_seed(2)
    features = torch.randn(64, 5, generator=generator)
    layers = torch.nn.Linear(5, 7), torch.nn.Linear(7, 3)
    with torch.no_grad():
        for layer in layers:
            for parameter in layer.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator))
    answers = layers[1](torch.relu(layers[0](features)))
    losses = torch.nn.functional.cross_entropy(answers, torch.arange(64) % 3, reduction="none")
    for _ in range(2):
        if by_torch:
            torch.autograd.backward(losses, torch.ones(64) if weights is None else weights, retain_graph=True)
        else:
            backward_weighted(losses, weights, keep_graph=True)
    found = [parameter.grad for layer in layers for parameter in layer.parameters()]
    return [gradient.clone() for gradient in found if gradient is not None]


@pytest.mark.parametrize("kind", [*WEIGHTS, None])
def test_the_gradient_is_that_of_torch_to_the_bit(kind: str | None) -> None:
    weights = None if kind is None else WEIGHTS[kind]
    ours, torchs = gradients(weights, by_torch=False), gradients(weights, by_torch=True)
    assert len(ours) == 4
    assert [own.numpy().tobytes() for own in ours] == [other.numpy().tobytes() for other in torchs]
