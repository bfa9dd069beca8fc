"""How a reference answers by task: what it is trained on, what it says of a record, and the excess over that.

    classes      q_k, by softmax of z / T             KL(q || p) = sum of q_k (log q_k - log p_k)
    labels       q_j of each label, by logistic       sum, or mean, of the divergences of the labels
    a number     the mean of the target               (output - mean)^2
    a time       the hazard h_j of each interval      sum of S_j KL(h_j || model's), S_j = survival before j

The excess is the expected loss under the reference's answer, minus the least that any prediction has: for the four
it is 0 exactly where the model says what the reference says. Probabilities are drawn away from 0 and 1
(`LEAST_CHANCE`), so that no excess hangs on a certainty that a reference cannot have.

Sources: Kullback and Leibler 1951 for the divergence; for hazards the chain rule of entropy over intervals.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from fedfair.errors import LocalProtocolError
from fedfair.plan.losses import (
    BinaryLoss,
    CrossEntropyLoss,
    Loss,
    MultiLabelLoss,
    OrdinalLoss,
    SquaredLoss,
    SurvivalLoss,
)
from fedfair.training.record_loss import OutputsAndTargets, RecordLoss, cross_entropy

LEAST_CHANCE = 0.002
"""No answer gives an outcome less than this; of many classes a tenth of an equal share, where that is less."""


@dataclass(frozen=True, slots=True)
class ReferenceAnswers:
    """The answers of references for one loss.

    Attributes:
        losses: from a reference's outputs (n, outputs) and targets (n, *targets) to the losses (n,) that it is
            trained on.
        answers: from its outputs (n, outputs) to its answers (n, outputs).
        excess: from a model's outputs (n, *outputs) and answers (n, outputs) to the excess (n,), from 0 on up to
            rounding.
        has_temperature: whether outputs may be divided by one.
    """

    losses: OutputsAndTargets
    answers: Callable[[Tensor], Tensor]
    excess: OutputsAndTargets
    has_temperature: bool = True


def reference_answers(loss: Loss, record_loss: RecordLoss) -> ReferenceAnswers:
    """Return how references answer under a plan's loss.

    Args:
        loss: the plan's.
        record_loss: the same under the present scaling of targets.

    Raises:
        LocalProtocolError: the loss has no excess.
    """
    per_record = record_loss.per_record
    match loss:
        case CrossEntropyLoss():
            return ReferenceAnswers(cross_entropy, class_chances, _divergence_of_logits)
        case BinaryLoss() | OrdinalLoss():
            return ReferenceAnswers(cross_entropy, class_chances, functools.partial(_expected, per_record))
        case MultiLabelLoss(reduction=reduction):
            excess = functools.partial(_labels_apart, mean=reduction == "mean")
            return ReferenceAnswers(per_record, _chances, excess)
        case SquaredLoss():
            return ReferenceAnswers(per_record, _itself, per_record_of_numbers, has_temperature=False)
        case SurvivalLoss():
            return ReferenceAnswers(per_record, _chances, _hazards_apart)
        case _:
            raise LocalProtocolError(f"{loss.name} has no excess, which the plan's own check refuses")


def class_chances(outputs: Tensor) -> Tensor:
    """Return the probability of each class, (n, classes), none below `LEAST_CHANCE`."""
    count = outputs.shape[1]
    least = min(LEAST_CHANCE, 0.1 / count)
    return torch.softmax(outputs, 1) * (1.0 - count * least) + least


def came_true(answers: Tensor, labels: Tensor) -> NDArray[np.float64]:
    """Return the chance that each record was given, and whether it came true: float64 array (n, 2).

    Args:
        answers: probabilities (n, classes). Of two the chance is that of class 1, else of the likeliest class.
        labels: classes (n,).
    """
    named = torch.ones_like(labels) if answers.shape[1] == 2 else answers.argmax(1)
    chances = answers.gather(1, named[:, None].long())[:, 0]
    return torch.stack([chances.double(), (labels == named).double()], 1).cpu().numpy()


def per_record_of_numbers(outputs: Tensor, answers: Tensor) -> Tensor:
    """Return the squared distance of outputs (n, 1) from expected numbers (n, 1), (n,)."""
    return (outputs[:, 0] - answers[:, 0].to(outputs)).square()


def _chances(outputs: Tensor) -> Tensor:
    return torch.sigmoid(outputs) * (1.0 - 2.0 * LEAST_CHANCE) + LEAST_CHANCE


def _itself(outputs: Tensor) -> Tensor:
    return outputs


def _divergence_of_logits(outputs: Tensor, answers: Tensor) -> Tensor:
    chances = answers.to(outputs)
    apart = (chances * (chances.log() - functional.log_softmax(outputs, 1))).sum(1)
    return apart.clamp(min=0.0)


def _expected(per_record: OutputsAndTargets, outputs: Tensor, answers: Tensor) -> Tensor:
    """Return the expected loss over classes (n, classes), minus the entropy of the answer."""
    chances = answers.to(outputs)
    found = (chances * chances.log()).sum(1)
    for named in range(chances.shape[1]):
        classes = torch.full((len(outputs),), named, dtype=torch.int64, device=outputs.device)
        found = found + chances[:, named] * per_record(outputs, classes)
    return found.clamp(min=0.0)


def _bernoulli(outputs: Tensor, chances: Tensor) -> Tensor:
    """Return KL(chances || logistic(outputs)) by element."""
    entropy = -(chances * chances.log() + (1.0 - chances) * (1.0 - chances).log())
    return (functional.softplus(outputs) - outputs * chances - entropy).clamp(min=0.0)


def _labels_apart(outputs: Tensor, answers: Tensor, *, mean: bool) -> Tensor:
    apart = _bernoulli(outputs, answers.to(outputs))
    return apart.mean(dim=1) if mean else apart.sum(dim=1)


def _hazards_apart(outputs: Tensor, answers: Tensor) -> Tensor:
    hazards = answers.to(outputs)
    survived = torch.cumprod(1.0 - hazards, 1)
    before = torch.cat([torch.ones_like(survived[:, :1]), survived[:, :-1]], 1)
    return (before * _bernoulli(outputs, hazards)).sum(1)
