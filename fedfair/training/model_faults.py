"""Turns what a model or its loss raises on a batch into one clear fault that quotes no record."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fedfair.errors import FedfairError, TrainingError


@contextmanager
def training_faults() -> Iterator[None]:
    """Turn whatever a model or its loss raises on a batch into one clear fault, whose message quotes no record."""
    try:
        yield
    except FedfairError:
        raise
    except Exception as error:  # torch and a "module:function" may raise anything
        raise TrainingError(
            f"the model or its loss fails on a batch of records: {type(error).__name__}",
            f"{error} (a BatchNorm needs at least two records in a batch; an accelerator may lack memory)",
        ) from error
