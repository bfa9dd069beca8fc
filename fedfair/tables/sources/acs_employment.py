"""The ACS Employment task over person records of the US Census Bureau (PUMS).

Decides features, target and filter: the sixteen features and ESR == 1 of `ACSEmployment` in folktables (Ding,
Hardt, Miller and Schmidt 2021, appendix B), written from its definition. Two traps of that code are kept on
purpose, because published figures have them: `ACSEmployment` applies no age filter (only `ACSEmploymentFiltered`
does, to ages 17 to 89 with a weight of at least 1), and a blank becomes 0, as `np.nan_to_num(x, -1)` passes -1 for
`copy`.

Features are the codes of the census as they stand. ST, SEX, RAC1P, AGEP and `race` (white, black, other) are kept
as text for partitions and group reports.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np

from fedfair.errors import DataError
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.sources import AcsEmploymentData
from fedfair.plan.task import TaskSection
from fedfair.tables.dataset import Dataset, Splits, concatenated
from fedfair.tables.source_modules import DataPaths, FileRecords
from fedfair.tables.text_file import FOLDER_REMEDY, read_table
from fedfair.tables.text_table import Faults, numbers

FEATURES = (
    "AGEP", "SCHL", "MAR", "RELP", "DIS", "ESP", "CIT", "MIG", "MIL", "ANC", "NATIVITY", "DEAR", "DEYE", "DREM",
    "SEX", "RAC1P",
)  # fmt: skip
TARGET, EMPLOYED = "ESR", 1
STATE, WEIGHT, RACE = "ST", "PWGTP", "race"
ALWAYS_KEPT = (STATE, "SEX", "RAC1P", "AGEP")
WHITE, BLACK = 1, 2

MAX_CODES = (99, 24, 5, 17, 2, 8, 5, 3, 4, 4, 2, 2, 2, 2, 2, 9)
"""The last code of every feature in the data dictionary of 2018; a blank is 0."""

SCHEMA = FeatureSchema(
    (len(FEATURES),),
    2,
    tuple(range(len(FEATURES))),
    FEATURES,
    ranges=tuple((0.0, float(greatest)) for greatest in MAX_CODES),
)


def planned_schema(stated: AcsEmploymentData, task: TaskSection) -> FeatureSchema:
    """Return the schema of the census columns."""
    return SCHEMA


def read(stated: AcsEmploymentData, task: TaskSection, paths: DataPaths, extra: tuple[str, ...]) -> FileRecords:
    """Return the persons of the files that are named, or of the folder."""
    train = load_acs_employment(paths.train or paths.folder, stated, extra)
    test = None if paths.test is None else load_acs_employment(paths.test, stated, extra)
    return FileRecords(Splits(train, test=test))


def load_acs_employment(path: Path, spec: AcsEmploymentData, extra: Collection[str]) -> Dataset:
    """Return the person records of one file, or of every table in a folder, in the order of their names.

    Args:
        path: a PUMS person file (psam_p*.csv), plain or .gz, or a folder of such files.
        spec: the plan's description.
        extra: columns to keep raw beside those that the plan keeps.

    Raises:
        DataError: a file is missing or damaged, lacks a column, or holds something else than numbers.
    """
    kept = tuple(name for name in dict.fromkeys((*ALWAYS_KEPT, *spec.keep, *extra)) if name != RACE)
    whole = concatenated([_read(file, spec, kept) for file in _files(path)])
    if not len(whole):
        raise DataError(f"{path} has no record left after the plan's filters", "check states and working_age_only")
    return whole


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.iterdir() if file.name.endswith((".csv", ".csv.gz")))
    if not files:
        raise DataError(f"{path} holds no .csv or .csv.gz file", FOLDER_REMEDY)
    return files


def _read(path: Path, spec: AcsEmploymentData, kept: Sequence[str]) -> Dataset:
    filters = (WEIGHT,) if spec.working_age_only else ()
    table = read_table(path, tuple(dict.fromkeys((TARGET, *FEATURES, *filters, *kept))))
    faults = Faults(table)
    coded = (*FEATURES, TARGET, STATE, *filters)
    values = {name: numbers(table, name, table.columns[name] == "", faults) for name in coded}
    faults.refuse()
    # Compared as numbers: the Census Bureau writes California as 06.
    keep = np.isin(values[STATE], spec.states) | (not spec.states)
    if spec.working_age_only:
        keep &= (values["AGEP"] > 16) & (values["AGEP"] < 90) & (values[WEIGHT] >= 1)
    features = np.stack([np.nan_to_num(values[name], nan=0.0)[keep] for name in FEATURES], axis=1)
    columns = {name: table.columns[name][keep] for name in kept}
    races = values["RAC1P"][keep]
    columns[RACE] = np.select([races == WHITE, races == BLACK], ["white", "black"], "other")
    return Dataset(features, (values[TARGET][keep] == EMPLOYED).astype(np.int64), SCHEMA, columns)
