"""The inputs of a saved model: raw records in, features as the model was trained on them out.

Decides how missing values are filled and features scaled, by the words of the model's own file, and which numbers
somebody may state for missing ones. How raw records are read is `raw_rows.py`'s business.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedfair.aggregation.feature_scaling import scale_columns
from fedfair.aggregation.target_scaling import of_features, scaled_columns
from fedfair.errors import DataError
from fedfair.prediction.raw_rows import RawColumns, RawRows, raw_columns, rows_of_array, rows_of_table
from fedfair.prediction.raw_tables import GIVEN, table_of
from fedfair.run.model_description import schema_of, source_of
from fedfair.run.saved_model import DescribedModel
from fedfair.tables.numeric_columns import scaled_features
from fedfair.tables.pixels import Values, are_pixels, feature_values
from fedfair.tables.text_table import TextTable, counted

if TYPE_CHECKING:
    import pandas as pd

    Records = pd.DataFrame | Mapping[str, ArrayLike] | NDArray[np.generic] | Sequence[Sequence[object]]

SHOWN_ROWS = 20


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
    more = f" and {len(rows) - SHOWN_ROWS} more" if len(rows) > SHOWN_ROWS else ""
    shown = ", ".join(str(table.lines[row]) for row in rows[:SHOWN_ROWS])
    return f"{table.path}, {table.place} {shown}{more}"
