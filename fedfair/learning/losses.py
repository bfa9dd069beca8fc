"""The losses of a model on a split, one by one. Nothing is trained here.

Losses are computed from the logits in float64 on the CPU, whatever the precision of the training, so that the
figures that are reported are those of the model that is saved.
"""

from __future__ import annotations

import torch
from torch.nn import functional

from fedfair.learning.device import Records, plain_arithmetic
from fedfair.learning.parameters import FlatModel
from fedfair.learning.result import Losses


def evaluate(model: FlatModel, records: Records) -> Losses:
    """Return the cross-entropy of each record, its label, and the class with the largest logit."""
    if model.training:
        model.eval()
    values, none = [torch.zeros(0, dtype=torch.float64)], torch.zeros(0, dtype=torch.int64)
    truths, predictions = [none], [none]
    with torch.inference_mode(), plain_arithmetic():
        for features, labels in records.in_order():
            logits, there = model(features).cpu().double(), labels.cpu()
            values.append(functional.cross_entropy(logits, there, reduction="none"))
            truths.append(there)
            predictions.append(logits.argmax(dim=1))
    return Losses(torch.cat(values).numpy(), torch.cat(truths).numpy(), torch.cat(predictions).numpy())
