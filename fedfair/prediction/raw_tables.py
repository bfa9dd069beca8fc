"""Raw records in memory as the table of texts that a file of them would be.

Decides what a value of a data frame, a mapping or an array is as text: a missing one is none, a whole number has
no point, and every number reads back exactly. What the texts mean is `raw_rows.py`'s business.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedfair.data.reading import TextTable
from fedfair.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

GIVEN = Path("the records given")
"""The name in faults of records that came from no file."""

MISSING = ""


def table_of(records: pd.DataFrame | Mapping[str, ArrayLike]) -> TextTable:
    """Return records as a table of texts; rows count from 0.

    Args:
        records: columns by name, all of one length, at least 1; None and NaN are missing values.

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
    columns = {name: _texts(frame.iloc[:, place]) for place, name in enumerate(names)}
    return TextTable(GIVEN, columns, np.arange(len(frame)), "row")


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


def _texts(values: pd.Series) -> NDArray[np.str_]:
    """Return a column as texts (n,) without surrounding blanks."""
    import pandas as pd

    missing = values.isna().to_numpy(np.bool_)
    if pd.api.types.is_float_dtype(values.dtype) and not missing.all():
        # Through 64 bits, whose shortest text reads back exactly.
        numbers = values.to_numpy(np.float64, na_value=np.nan).astype(np.str_)
        texts = pd.Series(numbers).str.removesuffix(".0").to_numpy(np.str_)
    else:
        texts = np.array([_text(value) for value in values.array], np.str_)
    return np.where(missing, MISSING, np.strings.strip(texts))


def _text(value: object) -> str:
    if isinstance(value, float | np.floating):
        return str(float(value)).removesuffix(".0")
    return str(value)
