"""Repeating what a model draws for itself (dropout), so that a pass can be made again with the same units.

A model draws from PyTorch's generators, on the CPU or on a GPU. Decides nothing about whose seeds those are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch


@contextmanager
def draws_replayed(device: torch.device, *, wanted: bool = True) -> Iterator[Callable[[], None]]:
    """Yield a function that puts the generators back to where they are now.

    Args:
        device: on which the model draws.
        wanted: False saves nothing, and the function must not be called.
    """
    on_gpu = wanted and device.type == "cuda"
    state = torch.get_rng_state() if wanted else None
    on_device = torch.cuda.get_rng_state(device) if on_gpu else None

    def replay() -> None:
        if state is not None:
            torch.set_rng_state(state)
        if on_device is not None:
            torch.cuda.set_rng_state(on_device, device)

    yield replay
