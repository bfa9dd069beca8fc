"""Linear layers of one model or of many at once, forward and backward, without autograd.

Decides how `models.mlp` (linear and MLP models) is computed for a group of collaborators: as one matrix product
where they share their weights, as a batched one where each has its own. Which steps are made with it is
`descent.py`'s business. With a^0 = x, z^l = W^l a^(l-1) + b^l and a^l = max(z^l, 0), and e^l for the gradient of
the summed objective in z^l, backpropagation (Rumelhart, Hinton and Williams 1986) is

    e^(l-1) = (W^l' e^l) where a^(l-1) > 0, else 0;   gradient in W^l: e^l a^(l-1)';   in b^l: e^l

Shapes: k collaborators, b records each. A shared tensor has no dimension for the collaborator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional

from fedfair.aggregation.model_layout import Layout
from fedfair.training.record_loss import RecordLoss


@dataclass(frozen=True, slots=True)
class Layer:
    """One linear layer, shared by all or one for each collaborator; views into flat vectors.

    Attributes:
        weight: tensor (out, in), or (k, out, in).
        bias: tensor (out,), or (k, out).
    """

    weight: Tensor = field(repr=False)
    bias: Tensor = field(repr=False)

    @property
    def is_shared(self) -> bool:
        """True where all collaborators use the same weights."""
        return self.weight.dim() == 2

    def forward(self, inputs: Tensor) -> Tensor:
        """Return (k, b, out) for inputs (k, b, in)."""
        if self.is_shared:
            return functional.linear(inputs, self.weight, self.bias)
        return torch.baddbmm(self.bias.unsqueeze(1), inputs, self.weight.transpose(1, 2))

    def pull_back(self, error: Tensor) -> Tensor:
        """Return the gradient (k, b, in) in the inputs, given that in the outputs, (k, b, out)."""
        return error @ self.weight

    def descend(self, error: Tensor, inputs: Tensor, rate: float) -> None:
        """Move against the gradient, in place: each member's own layer by its own, a shared one by their sum."""
        if self.is_shared:
            self.weight.addmm_(error.flatten(0, 1).t(), inputs.flatten(0, 1), alpha=-rate)
            self.bias.sub_(error.sum((0, 1)), alpha=rate)
        else:
            self.weight.baddbmm_(error.transpose(1, 2), inputs, alpha=-rate)
            self.bias.sub_(error.sum(1), alpha=rate)

    def put_gradient(self, error: Tensor, inputs: Tensor, *, wide: bool) -> None:
        """Overwrite each member's own layer with its gradient.

        Args:
            error: tensor (k, b, out).
            inputs: tensor (k, b, in).
            wide: whether to add up in float64.
        """
        if wide:
            error = error.double()
            self.weight.copy_(error.transpose(1, 2) @ inputs.double())
        else:
            self.weight.baddbmm_(error.transpose(1, 2), inputs, beta=0)
        self.bias.copy_(error.sum(1))


Layers = Sequence[Layer]
"""From the inputs to the logits, with a ReLU between any two."""


def layers_in(flat: Tensor, layout: Layout) -> tuple[Layer, ...]:
    """Return the layers of a model of `models.mlp`, as views.

    Args:
        flat: tensor (d,), one model; or (k, d), one for each collaborator.
        layout: where its tensors lie.
    """
    lead = flat.shape[:-1]
    tensors = {entry.name: flat[..., place].view(*lead, *entry.shape) for entry, place in layout.slices()}
    hidden = len(tensors) // 2 - 1
    names = [*(f"hidden{place}" for place in range(1, hidden + 1)), "output"]
    return tuple(Layer(tensors[f"{name}.weight"], tensors[f"{name}.bias"]) for name in names)


def forward(layers: Layers, features: Tensor) -> tuple[list[Tensor], Tensor]:
    """Return the inputs of every layer and the logits (k, b, classes) for features (k, b, columns)."""
    inputs = [features]
    for layer in layers[:-1]:
        inputs.append(layer.forward(inputs[-1]).relu_())
    return inputs, layers[-1].forward(inputs[-1])


def errors_of(layers: Layers, inputs: Sequence[Tensor], error: Tensor) -> list[Tensor]:
    """Return the gradient of every record's own objective in what comes out of each layer: e^1, ..., e^L.

    Args:
        layers: with which `forward` was computed.
        inputs: of every layer, from `forward`.
        error: tensor (k, b, classes), the gradient in the logits.
    """
    found = [error]
    for layer, entered in zip(reversed(layers[1:]), reversed(inputs[1:]), strict=True):
        found.append(torch.ops.aten.threshold_backward(layer.pull_back(found[-1]), entered, 0))
    return found[::-1]


def backward(layers: Layers, inputs: Sequence[Tensor], error: Tensor, moved: Layers, rate: float) -> None:
    """Make one step of gradient descent, in place.

    Args:
        layers: with which `forward` was computed.
        inputs: of every layer, from `forward`.
        error: tensor (k, b, classes), the gradient in the logits.
        moved: the layers that are moved; they may be `layers` themselves.
        rate: the learning rate.
    """
    for place in range(len(layers) - 1, -1, -1):
        # A layer that is moved has done its part in the gradient of those below.
        pulled = layers[place].pull_back(error) if place else None
        moved[place].descend(error, inputs[place], rate)
        if pulled is not None:
            error = torch.ops.aten.threshold_backward.grad_input(pulled, inputs[place], 0, grad_input=pulled)


def losses_and_errors(loss: RecordLoss, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the losses (k, b) and their gradients in the outputs (k, b, outputs), both without a graph.

    Args:
        loss: of each record, which depends on its own outputs alone.
        logits: tensor (k, b, outputs).
        labels: tensor (k, b, *targets).
    """
    if loss.is_cross_entropy:
        return cross_entropy(logits, labels)
    outputs = logits.detach().flatten(0, 1).requires_grad_()
    with torch.enable_grad():
        losses = loss.per_record(outputs, labels.flatten(0, 1))
        (gradient,) = torch.autograd.grad(losses.sum(), outputs)
    return losses.detach().view(labels.shape[:2]), gradient.view_as(logits).contiguous()


def cross_entropy(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the losses (k, b), in nats, and their gradients in the logits (k, b, classes).

    Args:
        logits: tensor (k, b, classes).
        labels: int64 tensor (k, b).
    """
    places = labels.unsqueeze(-1)
    logs = functional.log_softmax(logits, -1)
    losses = logs.gather(-1, places).squeeze(-1).neg_()
    gradient = logs.exp_()
    return losses, gradient.scatter_add_(-1, places, gradient.new_full((), -1.0).expand(places.shape))
