"""The classifier of this example: an encoder of 3-D convolutions, and a linear head.

The encoder is trained before, on volumes of no hospital, and frozen in the run; its running statistics too.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

CHANNELS = (16, 32)
"""Of the two convolutions. A feature is the mean or the greatest value of a channel: twice as many as the last."""


def block(taken: int, made: int, stride: int) -> list[nn.Module]:
    """Return a convolution of 3 x 3 x 3 voxels and what follows it."""
    return [nn.Conv3d(taken, made, 3, stride, padding=1), nn.BatchNorm3d(made), nn.ReLU()]


class Encoder(nn.Module):
    """Features of a volume."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*block(1, CHANNELS[0], 2), *block(CHANNELS[0], CHANNELS[1], 1))
        self.scale = nn.BatchNorm1d(2 * CHANNELS[1], affine=False, momentum=None)

    def forward(self, volumes: Tensor) -> Tensor:
        """Return features (records, 2 * CHANNELS[1]) of volumes (records, 1, depth, height, width)."""
        found = self.layers(volumes).flatten(2)
        return self.scale(torch.cat([found.mean(2), found.amax(2)], 1))


class VolumeClassifier(nn.Module):
    """Logits of a volume."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.encoder = Encoder()
        self.head = nn.Linear(2 * CHANNELS[1], classes)

    def forward(self, volumes: Tensor) -> Tensor:
        """Return logits (records, classes) of volumes (records, 1, depth, height, width)."""
        return self.head(self.encoder(volumes))


def build(schema: object) -> nn.Module:
    """Return the model of the plan."""
    return VolumeClassifier(schema.classes)
