"""ResNet-18 for images of any size, written here because torchvision would bring in another build of torch.

Two convolutions a block, four stages of two blocks with 64, 128, 256 and 512 channels (He et al. 2016, table 1).
Images below 64 pixels get the stem of the same paper's section 4.2 (3x3, stride 1, no pooling), larger ones the
usual 7x7 of stride 2 with pooling. GroupNorm is the default: the running statistics of BatchNorm are one more
thing that sites reveal and that their average does not fit (Hsieh et al. 2020).
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

Norm = Literal["group", "batch"]

STAGES = (64, 128, 256, 512)
BLOCKS_PER_STAGE = 2
GROUPS = 32
SMALL_IMAGE_BELOW = 64


def resnet18(channels: int, size: int, classes: int, norm: Norm) -> nn.Sequential:
    """Return an untrained ResNet-18.

    Args:
        channels: input channels, 1 or 3 as a rule.
        size: the smaller of the images' height and width, in pixels; decides the stem.
        classes: number of logits.
        norm: group (32 groups) or batch.
    """
    widths = (STAGES[0], *STAGES)
    blocks = [
        _Block(before if first else width, width, stride=2 if first and width != before else 1, norm=norm)
        for before, width in zip(widths, STAGES, strict=False)
        for first in (True, *[False] * (BLOCKS_PER_STAGE - 1))
    ]
    model = nn.Sequential()
    model.add_module("stem", _stem(channels, size, norm))
    model.add_module("blocks", nn.Sequential(*blocks))
    model.add_module("pool", nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()))
    model.add_module("output", nn.Linear(STAGES[-1], classes))
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return model


class _Block(nn.Module):
    """Two 3x3 convolutions beside a shortcut, which is 1x1 where the shape changes."""

    def __init__(self, before: int, width: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            nn.Conv2d(before, width, 3, stride, padding=1, bias=False),
            _norm(width, norm),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            _norm(width, norm),
        )
        self.shortcut = (
            nn.Identity()
            if before == width
            else nn.Sequential(nn.Conv2d(before, width, 1, stride, bias=False), _norm(width, norm))
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return relu(residual + shortcut)."""
        return nn.functional.relu(self.residual(images) + self.shortcut(images))


def _stem(channels: int, size: int, norm: Norm) -> nn.Sequential:
    if size < SMALL_IMAGE_BELOW:
        convolution = nn.Conv2d(channels, STAGES[0], 3, padding=1, bias=False)
        return nn.Sequential(convolution, _norm(STAGES[0], norm), nn.ReLU())
    convolution = nn.Conv2d(channels, STAGES[0], 7, stride=2, padding=3, bias=False)
    return nn.Sequential(convolution, _norm(STAGES[0], norm), nn.ReLU(), nn.MaxPool2d(3, 2, padding=1))


def _norm(width: int, norm: Norm) -> nn.Module:
    return nn.GroupNorm(GROUPS, width) if norm == "group" else nn.BatchNorm2d(width)
