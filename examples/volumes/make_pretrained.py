"""Trains the encoder of this example on made-up volumes of no hospital, without labels, and writes its weights.

Usage: python examples/volumes/make_pretrained.py FILE.safetensors

Blocks of 2 x 2 x 2 voxels are hidden, and a decoder fills them in from the features of the others (masked
autoencoders: He et al. 2022, in 3-D). Seconds on one core; the same file every time on one machine.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "src")]

from make_volumes import brightness  # noqa: E402
from volume_model import CHANNELS, VolumeClassifier  # noqa: E402
from volume_records import SHAPE, WHITE, scaled  # noqa: E402

VOLUMES, STEPS, BATCH = 200, 200, 8
RATE, MOMENTUM = 0.2, 0.9
"""Of the steps, which are written out: `torch.optim` takes longer to load than they take."""

HIDDEN = 0.3
"""Share of the blocks that are hidden."""


def volumes() -> Tensor:
    """Return volumes (VOLUMES, 1, *SHAPE) as a model sees them, from 0 to 1; half of them with a lesion."""
    draws = np.random.default_rng(0)
    seen = [scaled(brightness(place % 2 == 1, 0.2, 0.05, draws)) for place in range(VOLUMES)]
    return torch.from_numpy(np.stack(seen)[:, None]).float() / WHITE


def pretrained(steps: int = STEPS) -> VolumeClassifier:
    """Return the model after so many steps; nothing has trained its head."""
    torch.manual_seed(0)
    model, decoder = VolumeClassifier(classes=2), nn.ConvTranspose3d(CHANNELS[1], 1, 2, 2)
    whole, layers = volumes(), model.encoder.layers
    weights = [*layers.parameters(), *decoder.parameters()]
    speeds = [torch.zeros_like(one) for one in weights]
    for _ in range(steps):
        batch = whole[torch.randint(len(whole), (BATCH,))]
        blocks = torch.rand(BATCH, 1, *(side // 2 for side in SHAPE)) < HIDDEN
        hidden = nn.functional.interpolate(blocks.float(), scale_factor=2) > 0
        filled = decoder(layers(batch.masked_fill(hidden, 0)))
        loss = nn.functional.mse_loss(filled[hidden], batch[hidden])
        for weight, speed, slope in zip(weights, speeds, torch.autograd.grad(loss, weights), strict=True):
            speed.mul_(MOMENTUM).add_(slope)
            weight.data.sub_(RATE * speed)
    with torch.no_grad():
        layers.eval()
        model.encoder(whole)  # the features' own running mean and variance
    return model


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Weights of an encoder that has seen volumes.")
    parser.add_argument("file", type=Path)
    save_file(pretrained().state_dict(), parser.parse_args().file)
