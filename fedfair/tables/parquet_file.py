"""Tables in Parquet files, read by row groups and only in the columns that are needed.

Decides which Parquet files can be used: flat columns of one value in each row, neither encrypted nor cut off. A
file is known by its first bytes, whatever its name. The library (pyarrow) is an extra, and is loaded when such a
file is met.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedfair.errors import DataError
from fedfair.extras import is_installed, missing_extra
from fedfair.tables.file_kinds import ENCRYPTED_PARQUET_MAGIC, first_bytes
from fedfair.tables.typed_values import TypedSource

if TYPE_CHECKING:
    import pandas as pd

BATCH_ROWS = 1 << 14
"""Few enough that a block of many columns is small beside what the library holds of a row group."""
FIRST_DAY, LAST_DAY = -719_162, 2_932_896
"""0001-01-01 and 9999-12-31 in days since 1970: the dates that Python has."""

_AGAIN = "copy the file again from its source"


class ParquetTable:
    """A Parquet file, whose footer is read and whose columns are known.

    Args:
        path: the file.

    Raises:
        DataError: the library is missing, or the file cannot be read, is encrypted, cut off or damaged.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: Any = _opened(path)
        self._arrow: Any = self._file.schema_arrow
        self.header: tuple[str, ...] = tuple(self._arrow.names)
        self.rows: int = self._file.metadata.num_rows

    @property
    def typed(self) -> TypedSource:
        """The table as a source of records."""
        return TypedSource(self.header, self.frames, self._path)

    @property
    def flat(self) -> tuple[str, ...]:
        """The columns of one value in each row that has a text: neither lists nor records, nor bytes."""
        pa, _ = _libraries(self._path)
        kinds = {name: self._arrow.field(name).type for name in self.header}
        return tuple(
            name
            for name, kind in kinds.items()
            if not (pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_duration(kind))
        )

    def frames(self, wanted: Collection[str]) -> Iterator[pd.DataFrame]:
        """Yield the columns of these names in blocks of at most BATCH_ROWS rows, with the types of the file.

        Raises:
            DataError: a column holds lists or records, or the file is damaged.
        """
        import pandas as pd  # only who reads a table waits for it

        pa, _ = _libraries(self._path)
        names = [name for name in self.header if name in wanted]
        for name in names:
            kind = self._arrow.field(name).type
            if pa.types.is_nested(kind):
                raise DataError(
                    f"{self._path}, column '{name}' holds {kind}, not one value in each row",
                    "write the parts of it as columns of their own",
                )
        try:
            for batch in self._file.iter_batches(BATCH_ROWS, columns=names, use_threads=False):
                # A name with a point is read as a part of another column too, which is left out again.
                table = _plain(pa.Table.from_batches([batch]).select(names), pa)
                self._check(table)
                yield table.to_pandas(types_mapper=pd.ArrowDtype, ignore_metadata=True)
        except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
            raise _damaged(self._path, error) from error

    def _check(self, table: Any) -> None:  # noqa: ANN401 - pyarrow ships no types
        """Raise a DataError for values that Arrow carries and Python has no word for."""
        pa, _ = _libraries(self._path)
        for name, column in zip(table.column_names, table.columns, strict=True):
            try:
                column.validate(full=True)
            except pa.ArrowInvalid as error:
                held = "a text that is no UTF-8" if "UTF8" in str(error) else "values that are damaged"
                raise DataError(
                    f"{self._path}, column '{name}' holds {held}", "write the column again from its source"
                ) from error
            days = _days(column, pa)
            if days is not None and days.min() < FIRST_DAY:
                raise _no_date(self._path, name, "before the year 1")
            if days is not None and days.max() > LAST_DAY:
                raise _no_date(self._path, name, "after the year 9999")


def _days(column: Any, pa: Any) -> NDArray[np.int64] | None:  # noqa: ANN401 - pyarrow ships no types
    """Return the days since 1970 of a column's dates or moments; None where it has none."""
    kind, present = column.type, column.drop_null()
    if not (pa.types.is_date(kind) or pa.types.is_timestamp(kind)) or not len(present):
        return None
    whole = present.cast(pa.int32()) if kind == pa.date32() else present
    numbers: NDArray[np.int64] = whole.cast(pa.int64()).to_numpy().astype(np.int64)
    unit = {pa.date32(): 1, pa.date64(): 86_400_000}.get(kind)
    return numbers // (unit or 86_400 * {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[kind.unit])


def _no_date(path: Path, name: str, where: str) -> DataError:
    return DataError(
        f"{path}, column '{name}' holds a date {where}, which no calendar here has",
        "leave such values out: a null is a missing value",
    )


def _plain(table: Any, pa: Any) -> Any:  # noqa: ANN401 - pyarrow ships no types
    """Return a table in which a column of codes and their dictionary is a column of values."""
    for place, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            table = table.set_column(place, field.name, table.column(place).cast(field.type.value_type))
    return table


def _libraries(path: Path) -> tuple[Any, Any]:
    """Return pyarrow and its module for Parquet, which ship no types; a DataError names the extra."""
    if not is_installed("pyarrow"):
        fault = ModuleNotFoundError("No module named 'pyarrow'", name="pyarrow")
        raise DataError(f"{path} is a Parquet file: {missing_extra(fault)}")
    return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")


def _opened(path: Path) -> Any:  # noqa: ANN401 - pyarrow ships no types
    pa, parquet = _libraries(path)
    try:
        if first_bytes(path, len(ENCRYPTED_PARQUET_MAGIC)) == ENCRYPTED_PARQUET_MAGIC:
            raise _encrypted(path)
        return parquet.ParquetFile(path, memory_map=False, pre_buffer=False, buffer_size=1 << 20)
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> DataError:
    words = str(error).partition("\n")[0]
    if "crypt" in words.lower():
        return _encrypted(path)
    if "magic bytes" in words or "footer" in words:
        return DataError(f"{path} is a Parquet file that is cut off: its end is missing", _AGAIN)
    return DataError(f"{path} is a damaged Parquet file: {words.rstrip()}", _AGAIN)


def _encrypted(path: Path) -> DataError:
    return DataError(f"{path} is an encrypted Parquet file", "write it without encryption, on a disk that has it")
