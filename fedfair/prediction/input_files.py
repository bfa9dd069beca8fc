"""Records in a file that a saved model is to predict.

Decides which files a model takes: the table that its plan reads, as text or Parquet; an array of numbers (.npy); a
folder of images or of eICU's tables; or an idx file of images. A table may have its label or lack it. A table that
the plan reads without a header line may have one here, since a file that people make has. What its texts mean is
`model_inputs.py`'s business.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedfair.errors import DataError
from fedfair.plan.sources import EicuSource, ImageSource, MnistSource
from fedfair.prediction.model_inputs import RawColumns, RawRows, parquet_table, rows_of_array, rows_of_table
from fedfair.tables.file_kinds import READ_ERRORS, is_parquet, open_binary
from fedfair.tables.sources.eicu import PATIENT, PREDICTORS, VARIABLES, joined_stays
from fedfair.tables.text_file import TableForm, read_table
from fedfair.tables.text_table import BLANKS, TextTable, counted

ARRAY = ".npy"
IMAGES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
FILE_COLUMN = "file"


def read_input(
    path: Path, columns: RawColumns, kept: Sequence[str] = (), *, ignores_unknown: bool = False
) -> RawRows:
    """Return the records of a file as a model takes them.

    Args:
        path: the file or, for a model of images or of eICU's tables, their folder.
        columns: of the model.
        kept: columns of a table to keep beside the predictions.
        ignores_unknown: whether a table may have columns that the model does not know.

    Raises:
        DataError: there is no such file, it is empty, or its records are not what the model takes.
    """
    if not path.exists():
        raise DataError(f"there is no file {path}", "give the file of the records that are to be predicted")
    if kept and (path.suffix == ARRAY or isinstance(columns.source, ImageSource | MnistSource)):
        raise DataError(f"{path} has no column {kept[0]}", "leave --keep away: only a table has columns to keep")
    if isinstance(columns.source, ImageSource) and path.is_dir():
        return _images(path, columns.source)
    if isinstance(columns.source, EicuSource) and path.is_dir():
        return _stays(path, kept)
    if path.is_dir():
        raise DataError(f"{path} is a folder", "give one file of records")
    if path.suffix == ARRAY:
        return _array(path, columns)
    if isinstance(columns.source, MnistSource):
        from fedfair.tables.sources.mnist import IMAGES as FORM
        from fedfair.tables.sources.mnist import read_idx

        return rows_of_array(columns, read_idx(path, FORM)[:, np.newaxis])
    if is_parquet(path):
        return rows_of_table(columns, parquet_table(path, columns.spec), kept, ignores_unknown=ignores_unknown)
    form = columns.form if columns.spec is None else _form(path, columns.form, columns.spec.answer_columns)
    return rows_of_table(columns, read_table(path, form=form), kept, ignores_unknown=ignores_unknown)


def _form(path: Path, form: TableForm, answers: Collection[str]) -> TableForm:
    """Return how this file writes its rows: as the plan says, with a header line, or without the answers."""
    if form.columns is None:
        return form
    first = _first_fields(path, form)
    # Half of the names are enough: one that is misspelt is named when the columns are looked for.
    if first and 2 * len(set(first) & set(form.columns)) >= len(first):
        return replace(form, columns=None)
    without = [name for name in form.columns if name not in answers]
    return replace(form, columns=without) if len(first) == len(without) else form


def _first_fields(path: Path, form: TableForm) -> list[str]:
    """Return the fields of the first line that is a row; none where there is none."""
    try:
        with open_binary(path) as file:
            for raw in file:
                line = raw.decode(form.codec, errors="replace").strip()
                if line and not (form.comment is not None and line.startswith(form.comment)):
                    fields = line.split(None if form.separator == BLANKS else form.separator)
                    return [field.strip().strip('"') for field in fields]
    except READ_ERRORS as error:
        raise DataError(f"{path} cannot be read: {error}", "give a file that this user may read") from error
    return []


def _stays(folder: Path, kept: Sequence[str]) -> RawRows:
    features, table, texts, left_out = joined_stays(folder, kept)
    verb = "is" if left_out == 1 else "are"
    left = f"{counted(left_out, 'stay')} of {PATIENT} {verb}"
    words = f"{left} not in {VARIABLES} and {PREDICTORS}, and not predicted"
    return RawRows(features, table, texts, (words,) if left_out else ())


def _array(path: Path, columns: RawColumns) -> RawRows:
    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path} is no array that can be read: {error}", "write it with numpy.save") from error
    if not isinstance(array, np.ndarray):
        raise DataError(f"{path} holds several arrays", "write one array with numpy.save")
    return rows_of_array(columns, array)


def _images(folder: Path, source: ImageSource) -> RawRows:
    from fedfair.tables.sources.images import image_pixels

    files = sorted(file for file in folder.iterdir() if file.suffix.lower() in IMAGES)
    if not files:
        raise DataError(f"{folder} holds no image", f"images end in {', '.join(IMAGES)}")
    pixels = np.stack([image_pixels(file, source.images) for file in files])
    names = {FILE_COLUMN: np.array([file.name for file in files], np.str_)}
    return RawRows(pixels, TextTable(folder, names, np.arange(len(files)), "image"), names)
