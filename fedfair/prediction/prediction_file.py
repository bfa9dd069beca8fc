"""Predictions as a table: `predicted` and one column `probability_<class>` for each class, or numbers.

A column has the same name where no calibration made a probability of a score: programs read it by its name, and
`fedfair predict` says what it holds.

Decides the columns, that each number reads back exactly, and that a file appears whole or not at all. A file that
is there already is replaced only where that was asked for.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedfair.errors import DataError
from fedfair.plan.fields import Scalar

PREDICTED = "predicted"
PROBABILITY = "probability_"


def prediction_columns(classes: Sequence[Scalar]) -> tuple[str, ...]:
    """Return the names of the columns of predictions; classes of one text are told apart by their numbers."""
    texts = [str(label) for label in classes]
    if len(set(texts)) < len(texts):
        texts = [str(place) for place in range(len(texts))]
    return (PREDICTED, *(f"{PROBABILITY}{text}" for text in texts))


def check_prediction_place(path: Path, kept: Sequence[str], columns: Sequence[str], *, replace: bool) -> None:
    """Refuse, before the work, a place or a column that predictions may not have.

    Args:
        path: of the output.
        kept: names of columns that are kept beside the predictions.
        columns: names of those that are made.
        replace: whether a file that is there may be replaced.

    Raises:
        DataError: the folder does not exist, the file exists and is not to be replaced, or a column that is kept
            has the name of one that is made.
    """
    if not path.parent.is_dir():
        raise DataError(f"{path}: the folder {path.parent} does not exist", "create it, or name another file")
    if path.is_dir():
        raise DataError(f"{path} is a folder", "name a file in it")
    if path.is_file() and not replace:
        raise DataError(f"{path} exists", "name another file, or replace this one with --replace")
    taken = [name for name in kept if name in columns]
    if taken:
        raise DataError(f"--keep {taken[0]}: predictions have a column of that name", "rename it in the data")


def prediction_text(
    names: Sequence[str], said: Sequence[Sequence[object]], kept: Mapping[str, NDArray[np.str_]]
) -> str:
    """Return predictions as CSV, with kept columns before them.

    Args:
        names: of the columns that are predicted.
        said: what is predicted of each record.
        kept: by name, texts (n,) that are repeated.
    """
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow([*kept, *names])
    before = zip(*kept.values(), strict=True) if kept else (() for _ in said)
    table.writerows([*own, *row] for own, row in zip(before, said, strict=True))
    return text.getvalue()


@contextmanager
def writing(what: str, path: Path) -> Iterator[None]:
    """Tell by its name what cannot be written to a path.

    Raises:
        DataError: it cannot; what was there is as it was.
    """
    try:
        yield
    except OSError as error:
        fault = f"the {what} cannot be written to {path}: {error.strerror}"
        raise DataError(fault, "check the folder and free space") from error
