"""Files of raw records that a saved model predicts, and the file of its predictions.

Decides which files a model takes: the table that its plan reads, as text or Parquet; an array of numbers (.npy); a
folder of images or of eICU's tables; or an idx file of images. A table may have its label or lack it. A table that
the plan reads without a header line may have one here, since a file that people make has. What its texts mean is
`model_inputs.py`'s business.

Predictions are a table: `predicted` and one column `probability_<class>` for each class, or numbers. On request
the sets follow: `in_set_<class>`, 1 or 0, or `lower` and `upper` of a number's interval. A column of classes has
the same name where no calibration made a probability of a score: programs read it by its name, and `fedfair
predict` says what it holds. Decides the columns, that each number reads back exactly, and that a file appears
whole or not at all. A file that is there already is replaced only where that was asked for.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedfair.errors import DataError
from fedfair.plan.fields import Scalar
from fedfair.plan.sources import EicuSource, ImageSource, MnistSource
from fedfair.prediction.model_inputs import RawColumns, RawRows, parquet_table, rows_of_array, rows_of_table
from fedfair.tables.file_kinds import READ_ERRORS, is_parquet, open_binary
from fedfair.tables.sources.eicu import PATIENT, PREDICTORS, VARIABLES, joined_stays
from fedfair.tables.text_file import TableForm, read_table
from fedfair.tables.text_table import BLANKS, TextTable, counted

ARRAY = ".npy"
IMAGES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
FILE_COLUMN = "file"

PREDICTED = "predicted"
PROBABILITY = "probability_"
IN_SET = "in_set_"
LOWER, UPPER = "lower", "upper"


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


def prediction_columns(classes: Sequence[Scalar]) -> tuple[str, ...]:
    """Return the names of the columns of predictions; classes of one text are distinguished by their numbers."""
    return (PREDICTED, *(f"{PROBABILITY}{text}" for text in _class_texts(classes)))


def set_columns(classes: Sequence[Scalar]) -> tuple[str, ...]:
    """Return the names of the columns of sets: of each class whether it is in, or of an interval both ends."""
    return tuple(f"{IN_SET}{text}" for text in _class_texts(classes)) or (LOWER, UPPER)


def _class_texts(classes: Sequence[Scalar]) -> list[str]:
    texts = [str(label) for label in classes]
    return texts if len(set(texts)) == len(texts) else [str(place) for place in range(len(texts))]


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
