"""Raw records in memory, or in a Parquet file, as the table that a text file of them would be.

Decides which columns of a data frame, a mapping or an array are used as numbers. What their values mean is the
business of `tables.typed_values`, and what becomes of them that of `raw_rows.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedfair.errors import DataError
from fedfair.plan.csv_table import CsvData
from fedfair.tables.table_reader import measured_answers
from fedfair.tables.text_table import TextTable
from fedfair.tables.typed_values import typed_table

if TYPE_CHECKING:
    import pandas as pd

GIVEN = Path("the records given")
"""The name in faults of records that came from no file."""


def table_of(records: pd.DataFrame | Mapping[str, ArrayLike], spec: CsvData | None = None) -> TextTable:
    """Return records as a table; rows count from 0.

    Args:
        records: columns by name, all of one length, at least 1; None and NaN are missing values.
        spec: how the model's plan describes a table; None where it describes none.

    Raises:
        DataError: there are no records, two columns share a name, or columns differ in length.
    """
    import pandas as pd  # only who uses a table waits for it

    try:
        frame = records if isinstance(records, pd.DataFrame) else pd.DataFrame(dict(records))
    except ValueError as error:
        raise DataError(f"{GIVEN} are no table: {error}", "give columns of one length") from error
    names = [str(name) for name in frame.columns]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"{GIVEN} have two columns called '{twice[0]}'", "give every column its own name")
    if not len(frame):
        raise DataError(f"{GIVEN} are none", "give at least one record")
    frame = frame.set_axis(names, axis=1)
    return typed_table(frame, spec, GIVEN, 0, () if spec is None else used_as_numbers(spec, names))


def parquet_table(path: Path, spec: CsvData | None) -> TextTable:
    """Return the records of a Parquet file as a table; rows count from 1.

    Args:
        path: the file.
        spec: how the model's plan describes a table; None where it describes none.

    Raises:
        DataError: the file cannot be read, or has no records.
    """
    import pandas as pd  # only who uses a table waits for it

    from fedfair.tables.parquet_file import ParquetTable

    table = ParquetTable(path)
    frames = list(table.frames(table.header))
    if not table.rows:
        raise DataError(f"{path} has no records", "name a file with at least one record")
    frame = pd.concat(frames, ignore_index=True)
    return typed_table(frame, spec, path, 1, () if spec is None else used_as_numbers(spec, table.header))


def used_as_numbers(spec: CsvData, header: Collection[str]) -> tuple[str, ...]:
    """Return the columns of a table that a plan uses as numbers, as far as they are there."""
    others = {*spec.categorical, *spec.rows, *spec.keep, spec.collaborator, *spec.answer_columns}
    numeric = [name for name in header if name not in others] if isinstance(spec.numeric, str) else spec.numeric
    return tuple(name for name in (*numeric, *measured_answers(spec)) if name in header)


def named_columns(
    array: NDArray[np.generic], names: Sequence[str], keys: Sequence[str]
) -> dict[str, NDArray[np.generic]]:
    """Return the columns of an array (n, columns) by their keys.

    Args:
        array: the records.
        names: of its columns, for a fault.
        keys: under which the columns are returned, as many.

    Raises:
        DataError: the array has another shape.
    """
    if array.ndim != 2 or array.shape[1] != len(names):
        raise DataError(
            f"{GIVEN} have the shape {array.shape}, the model takes (records, {len(names)})",
            f"give the columns in this order: {', '.join(names)}",
        )
    return {name: array[:, place] for place, name in enumerate(keys)}
