"""The inputs of a saved model: raw records in, features as the model was trained on them out.

Decides which columns must be there, which may, and which are refused; which of a data frame, a mapping or an array
are used as numbers; how missing values are filled and features scaled, by the words of the model's own file; and
which numbers somebody may state for missing ones. Texts become features by the functions that read training
records (`fedfair.tables`), so that a missing value or one that training never saw is treated as it was there.
Labels are not needed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedfair.aggregation.feature_scaling import scale_columns
from fedfair.aggregation.target_scaling import of_features, scaled_columns
from fedfair.errors import DataError
from fedfair.plan.csv_table import CsvData
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.sources import BUILT_IN, AcsEmploymentSource, CsvSource, DataSource, EicuSource
from fedfair.policy.site_format import FormatSection
from fedfair.run.model_description import schema_of, source_of
from fedfair.run.saved_model import DescribedModel
from fedfair.tables.feature_storage import first_of
from fedfair.tables.number_texts import form_of
from fedfair.tables.numeric_columns import scaled_features
from fedfair.tables.pixels import Values, are_pixels, feature_values, is_image
from fedfair.tables.profile import ColumnProfile
from fedfair.tables.site_form import site_table
from fedfair.tables.sources.acs_employment import EMPLOYED
from fedfair.tables.sources.acs_employment import FEATURES as ACS_FEATURES
from fedfair.tables.sources.acs_employment import TARGET as ACS_TARGET
from fedfair.tables.sources.eicu import STAY_COLUMNS, stay_features
from fedfair.tables.table_reader import Advice, answers_of, coded_features, measured_answers, value_places
from fedfair.tables.text_file import TableForm, form_of_file
from fedfair.tables.text_table import Faults, TextTable, counted, listed, numbers, refuse_twice, require_columns
from fedfair.tables.typed_values import typed_table

if TYPE_CHECKING:
    import pandas as pd

    Records = pd.DataFrame | Mapping[str, ArrayLike] | NDArray[np.generic] | Sequence[Sequence[object]]

GIVEN = Path("the records given")
"""The name in faults of records that came from no file."""

MODEL_ADVICE = Advice(
    "fill them in, or give the number that stands for one: --fill COLUMN=NUMBER; training had no such records",
    "fill them in: the model was trained on files without any",
    "correct it: the model was trained on values within the range",
    "correct it",
)
"""For records that meet a model which is finished."""

SHOWN = 20
BUILT_IN_LABEL = "target"

SHOWN_ROWS = 20


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
    refuse_twice(f"{GIVEN} have", names)
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


@dataclass(frozen=True, slots=True)
class RawRows:
    """Records as a saved model takes them, before they are scaled.

    Attributes:
        features: float array (n, *input_shape), NaN where the model's own treatment fills in a value; or the bytes
            of images.
        table: what they were read from; None where that was an array.
        kept: texts (n,) by the name of a column that is kept beside the predictions.
        notes: what somebody should know of them, one sentence each.
    """

    features: Values = field(repr=False)
    table: TextTable | None
    kept: Mapping[str, NDArray[np.str_]] = field(default_factory=dict, repr=False)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RawColumns:
    """The columns of one model's raw records.

    Attributes:
        source: how records are read.
        schema: of the features.
        spec: the description of a table; None where the source is none or has rules of its own.
        names: of the columns that become features, in the order of an array; None where they have no names.
        unnamed: how many columns `numeric: all` stands for, which are all that have no other role.
    """

    source: DataSource
    schema: FeatureSchema
    spec: CsvData | None
    names: tuple[str, ...] | None
    unnamed: int = 0

    @property
    def form(self) -> TableForm:
        """How a file of such records writes its rows."""
        return TableForm(fixed=True) if self.spec is None else form_of_file(self.spec, fixed=True)

    def refuses_gaps(self, column: str) -> bool:
        """Return whether training had no missing value in a numeric column, so that the model fills in none."""
        spec = self.spec
        return spec is not None and spec.missing_of.get(column, spec.missing) == "refuse"

    def with_gaps(self, columns: Collection[str]) -> RawColumns:
        """Return the same where these columns may lack values, for which somebody has stated a number."""
        gaps = {name: "mean" for name in columns if self.refuses_gaps(name)}
        if not gaps or self.spec is None:
            return self
        return replace(self, spec=self.spec.model_copy(update={"missing_of": self.spec.missing_of | gaps}))

    def written(self, form: FormatSection, key: str) -> RawColumns:
        """Return the columns of one file that is written in another form than the model's plan has it.

        Args:
            form: of the file.
            key: where it is stated, for faults.

        Raises:
            DataError: the model takes no table whose form a plan describes.
            PlanError: the form and the model's plan do not go together.
        """
        if self.spec is None or self.names is None or not isinstance(self.source, CsvSource):
            raise DataError(f"{key} says how a table is written, and this model takes no such table", "remove it")
        table = site_table(self.spec, form, key=key)
        return replace(self, spec=table.file, names=table.in_file(self.names))


def raw_columns(source: DataSource, schema: FeatureSchema) -> RawColumns:
    """Return the columns that a model of this source and schema takes."""
    match source:
        case CsvSource(csv=spec) if isinstance(spec.numeric, str):
            count = len(schema.numeric)
            order = tuple(f"numeric column {place}" for place in range(1, count + 1))
            return RawColumns(source, schema, spec, (*order, *spec.categorical), count)
        case CsvSource(csv=spec):
            return RawColumns(source, schema, spec, (*spec.numeric, *spec.categorical))
        case AcsEmploymentSource():
            spec = CsvData(label=ACS_TARGET, numeric=ACS_FEATURES, missing="zero", missing_values=("",))
            return RawColumns(source, schema, spec, ACS_FEATURES)
        case EicuSource():
            return RawColumns(source, schema, None, STAY_COLUMNS)
        case str() as name if name in BUILT_IN:
            spec = CsvData(label=BUILT_IN_LABEL, numeric=schema.names)
            return RawColumns(source, schema, spec, schema.names)
    return RawColumns(source, schema, None, None)


def rows_of_table(
    columns: RawColumns, table: TextTable, kept: Collection[str] = (), *, ignores_unknown: bool = False
) -> RawRows:
    """Return the features of a table's rows, all of them, in their order.

    Args:
        columns: of the model.
        table: the records; a label, and what else the plan names, may be among the columns.
        kept: further columns that may be there.
        ignores_unknown: whether any other column may be there too.

    Raises:
        DataError: a column is missing or unknown, or a value is one that training would have refused.
    """
    require_columns(table.path, list(table.columns), kept, fixed=True)
    rows = _rows(columns, table, kept, ignores_unknown=ignores_unknown)
    return replace(rows, kept={name: table.columns[name] for name in kept})


def _rows(columns: RawColumns, table: TextTable, kept: Collection[str], *, ignores_unknown: bool) -> RawRows:
    if isinstance(columns.source, EicuSource):
        return RawRows(stay_features(table), table)
    if columns.names is None:
        return _unnamed_rows(columns, table, kept)
    spec = columns.spec
    if spec is None:
        raise DataError(f"{table.path} is a table, and the model takes none", "give an array of features")
    numeric = _numeric(columns, spec, table, kept)
    require_columns(table.path, list(table.columns), (*numeric, *spec.categorical), fixed=True)
    if isinstance(columns.source, CsvSource | str) and not ignores_unknown:
        _refuse_unknown(table, spec, numeric, kept)
    faults = Faults(table, fixed=True)
    features, profiles = coded_features(table, spec, numeric, faults, MODEL_ADVICE)
    faults.refuse()
    return RawRows(features, table, notes=tuple(_notes(table, spec, profiles)))


def rows_of_array(columns: RawColumns, array: NDArray[np.generic]) -> RawRows:
    """Return the features of the records in an array.

    Args:
        columns: of the model.
        array: (n, columns) in the order of `columns.names`; where there are none, the features themselves, of the
            shape (n, *input_shape).

    Raises:
        DataError: the array has another shape, or a value is one that training would have refused.
    """
    if columns.names is None:
        return _features_as_they_are(columns, array)
    if array.ndim != 2 or array.shape[1] != len(columns.names):
        raise DataError(
            f"{GIVEN} have the shape {array.shape}, the model takes (records, {len(columns.names)})",
            f"give the columns in this order: {', '.join(columns.names)}",
        )
    # Numeric columns without names are taken in the order of whatever names they have.
    order = [f"{place:09d}" if place < columns.unnamed else name for place, name in enumerate(columns.names)]
    by_name = {name: array[:, place] for place, name in enumerate(order)}
    return rows_of_table(columns, table_of(by_name, columns.spec))


def _features_as_they_are(columns: RawColumns, array: NDArray[np.generic]) -> RawRows:
    shape = columns.schema.input_shape
    if array.shape[1:] != shape or not len(array):
        raise DataError(
            f"{GIVEN} have the shape {array.shape}, the model takes (records, {', '.join(map(str, shape))})",
            "give at least one record of that shape",
        )
    if not (np.issubdtype(array.dtype, np.number) or array.dtype == np.bool_):
        raise DataError(f"{GIVEN} are of {array.dtype}", "give numbers")
    if is_image(array):
        return RawRows(cast("Values", array), None)
    width = np.float32 if array.dtype == np.float32 else np.float64
    features: NDArray[np.floating] = array.astype(width)
    wrong = first_of(features, lambda block: ~np.isfinite(block))
    if wrong is not None:
        record, place, _ = wrong
        raise DataError(
            f"{GIVEN}: {columns.schema.name_of(place)} of record {record} is {features[record, *place]}",
            "give finite numbers",
        )
    return RawRows(features, None)


def answers_given(columns: RawColumns, table: TextTable | None) -> NDArray[Any]:
    """Return the answer of every row: a class from 0, a number, or what else the plan predicts.

    Raises:
        DataError: there is no table, it lacks a column of the answers, or has an answer that the model does not
            know.
    """
    spec = columns.spec
    wanted = () if spec is None else spec.answer_columns
    missing = [name for name in wanted if table is None or name not in table.columns]
    if spec is None or table is None or missing:
        named = f" {missing[0]}" if missing else ""
        what = "label" if columns.schema.classes else "answer"
        raise DataError(f"{GIVEN} have no {what}{named}", "give it as one more column")
    if isinstance(columns.source, AcsEmploymentSource):
        employed: NDArray[np.int64] = (value_places(table.columns[ACS_TARGET], [(EMPLOYED,)]) == 0).astype(
            np.int64
        )
        return employed
    faults = Faults(table, fixed=True)
    found = answers_of(table, spec, columns.schema.classes, faults)
    faults.refuse()
    return found


def _unnamed_rows(columns: RawColumns, table: TextTable, kept: Collection[str]) -> RawRows:
    """Return the features of a table whose columns are features in the order in which they stand."""
    if len(columns.schema.input_shape) != 1:
        raise DataError(
            f"{table.path} is a table, the model takes records of shape {columns.schema.input_shape}",
            "give them as an array, or in the form that the plan reads",
        )
    names = [name for name in table.columns if name not in kept]
    expected = columns.schema.input_shape[0]
    if len(names) != expected:
        raise DataError(
            f"{table.path} has {counted(len(names), 'column')}, the model takes {expected} without names",
            "give its features alone, in the order in which the plan's function returns them",
        )
    faults = Faults(table)
    none = np.zeros(len(table), np.bool_)
    features = np.stack([numbers(table, name, none, faults) for name in names], axis=1)
    faults.refuse()
    return RawRows(features, table)


def _others(spec: CsvData) -> tuple[str, ...]:
    """Return the columns that the plan names and that are no features."""
    owner = () if spec.collaborator is None else (spec.collaborator,)
    return tuple(dict.fromkeys((*spec.answer_columns, *owner, *spec.rows, *spec.keep)))


def _numeric(columns: RawColumns, spec: CsvData, table: TextTable, kept: Collection[str]) -> Sequence[str]:
    if not isinstance(spec.numeric, str):
        return spec.numeric
    named = {*_others(spec), *spec.categorical, *kept}
    left = sorted(name for name in table.columns if name not in named)
    if len(left) != columns.unnamed:
        raise DataError(
            f"{table.path} has {counted(len(left), 'numeric column')}, the model takes {columns.unnamed}: "
            f"{', '.join(left[:SHOWN])}{', ...' if len(left) > SHOWN else ''}",
            "give the very columns that the model was trained on; the plan does not name them (numeric: all)",
        )
    return left


def _refuse_unknown(table: TextTable, spec: CsvData, numeric: Sequence[str], kept: Collection[str]) -> None:
    known = {*numeric, *spec.categorical, *_others(spec), *(spec.columns or ()), *kept}
    unknown = [name for name in table.columns if name not in known]
    if not unknown:
        return
    shown = listed([f"'{name}'" for name in unknown], SHOWN)
    raise DataError(
        f"{table.path} has {counted(len(unknown), 'column')} that the model does not know: {shown}",
        "remove them, keep them beside the predictions with --keep, or give --ignore-unknown; the model takes "
        f"{', '.join([*numeric, *spec.categorical])}",
    )


def _notes(table: TextTable, spec: CsvData, profiles: Sequence[ColumnProfile]) -> Iterator[str]:
    """Yield what somebody should know of the rows, although all of them are predicted."""
    for profile in profiles:
        if profile.other:
            values = counted(profile.other, "value")
            yield f"column '{profile.name}': {values} that training did not name count as other; {profile.words}"
    for column, wanted in spec.rows.items():
        if column in table.columns:
            outside = int((value_places(table.columns[column], [wanted], form_of(spec, column)) < 0).sum())
            named = ", ".join(str(value) for value in wanted)
            if outside:
                yield f"{counted(outside, 'row')} not with {column} {named}, for which alone the model was trained"


class ModelInputs:
    """The records that one model takes.

    Args:
        described: what its file says.
        fills: by the name of a feature the number that a missing value becomes, where sites filled in their own
            means or training had no missing values.

    Raises:
        DataError: fills are given for a feature that the model does not have, or that it fills itself; or the
            model was saved before its features were scaled.
    """

    def __init__(self, described: DescribedModel, fills: Mapping[str, float] | None) -> None:
        self._description, self._saved = described.origin.description, described.saved
        self.schema = schema_of(self._description)
        self._fills = dict(fills or {})
        trained = raw_columns(source_of(self._description), self.schema)
        self.raw = trained.with_gaps(self._fills)
        self._check_scaling()
        self._check_fills(trained)

    def rows(self, records: Records) -> RawRows:
        """Return records as the model takes them, not yet scaled. Raises DataError as `predict` does."""
        if isinstance(records, np.ndarray | Sequence):
            return rows_of_array(self.raw, np.asarray(records))
        return rows_of_table(self.raw, table_of(records, self.raw.spec))

    def scaled(self, rows: RawRows) -> Values:
        """Return features (n, *input_shape) filled in and scaled, as the model takes them, or bytes of images.

        Raises:
            DataError: a value is missing that nothing fills in.
        """
        features = rows.features
        if are_pixels(features):
            return features
        numbers = self._stated(feature_values(features))
        scaling = self._saved.scaling
        if scaling is not None:
            return scale_columns(numbers, self.schema.numeric, of_features(self._description.record_loss, scaling))
        if self._description.input.by_ranges and self.schema.numeric:
            return scaled_features(numbers, self.schema)
        return self._filled(numbers, rows.table)

    def _check_scaling(self) -> None:
        """Refuse a model that was saved before the features were scaled: its figures would be another's."""
        saved = self._saved
        columns = scaled_columns(self._description.record_loss, len(self.schema.numeric))
        if self._description.input.by_sums and saved.scaling is None and saved.round == 0 and columns:
            raise DataError(
                "this model does not say how its features are scaled: it is from before the first round",
                "give a model that was saved after it, such as save/last.safetensors",
            )

    def _check_fills(self, trained: RawColumns) -> None:
        if not self._fills:
            return
        scales = self._saved.scaling is not None or self._description.input.by_ranges
        fixed = [name for name in self._fills if scales and not trained.refuses_gaps(name)]
        if fixed:
            raise DataError(
                f"this model fills in missing numbers itself, as it did in training, also those of '{fixed[0]}'",
                "give no number to fill in",
            )
        numbers = [self.schema.names[place] for place in self.schema.numeric if self.schema.names]
        unknown = [name for name in self._fills if name not in numbers]
        if unknown:
            raise DataError(f"'{unknown[0]}' is no numeric column of this model", f"they are {', '.join(numbers)}")

    def _stated(self, given: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return features in which each missing number is the one that was stated for its column."""
        if not self._fills:
            return given
        features = given.copy()
        for name, number in self._fills.items():
            place = self.schema.names.index(name)
            features[np.isnan(features[:, place]), place] = number
        return features

    def _filled(self, given: NDArray[np.floating], table: TextTable | None) -> NDArray[np.floating]:
        """Return features without a gap; a DataError names one for which no number was stated."""
        missing = np.isnan(given)
        if not missing.any():
            return given
        left = np.argwhere(missing)
        place = int(left[0][1])
        name = self.schema.name_of((place,))
        where = [int(row) for row, column in left if column == place]
        raise DataError(
            f"{_places_of(table, where)}: {name} is missing, and training filled in each site's own "
            "mean, which the model's file does not have",
            f"fill them in, or give this site's own mean with --fill {name.strip(chr(39))}=NUMBER",
        )


def _places_of(table: TextTable | None, rows: Sequence[int]) -> str:
    """Return in words where some rows are."""
    if table is None:
        return f"{GIVEN}, {counted(len(rows), 'row')}"
    return f"{table.path}, {table.place} {listed([str(table.lines[row]) for row in rows], SHOWN_ROWS)}"
