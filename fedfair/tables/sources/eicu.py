"""Hospital mortality of intensive care stays: eICU Collaborative Research Database (Pollard et al. 2018).

Decides which columns of the first day are features, and that nothing which is known only afterwards is one: no
discharge column, no length of stay, no prediction of another model. The tables `patient`, `apacheapsvar`,
`apachepredvar` and `hospital` are joined by stay; `eicu_demo_mortality`, one table with the same columns, is taken
instead where it is in the folder. Stays without APACHE variables or without a known outcome are left out.

In APACHE columns -1 means that something was not measured, which is itself informative: such a column gets an
indicator beside it, and the gap is filled: with the overall mean under `standardize: secure`, with the middle of
the range below under `ranges`, otherwise with the site's own mean. Ages above 89 are written '> 89' and count as
90. A patient may have several stays, so holding out goes by `uniquepid`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedfair.errors import DataError
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.sources import EicuData
from fedfair.plan.task import TaskSection
from fedfair.tables.dataset import Dataset, Splits
from fedfair.tables.source_modules import DataPaths, FileRecords
from fedfair.tables.text_file import find_file, read_table
from fedfair.tables.text_table import Faults, TextTable, numbers, require_columns

JOINED = "eicu_demo_mortality.csv"
VARIABLES, PATIENT, HOSPITALS, PREDICTORS = "apacheapsvar", "patient", "hospital", "apachepredvar"
STAY, PERSON, OUTCOME, HOSPITAL = "patientunitstayid", "uniquepid", "hospitaldischargestatus", "hospitalid"
OUTCOMES = ("Alive", "Expired")

MEASURED = (
    "eyes", "motor", "verbal", "meds", "urine", "wbc", "temperature", "respiratoryrate", "sodium", "heartrate",
    "meanbp", "ph", "hematocrit", "creatinine", "albumin", "pao2", "pco2", "bun", "glucose", "bilirubin", "fio2",
    "age", "admissionheight", "admissionweight",
)  # fmt: skip
"""Numbers that may be missing: blank or -1."""

RANGES = (
    (1, 4), (1, 6), (1, 5), (0, 1), (0, 10_000), (0, 100), (20, 45), (0, 80), (100, 180), (0, 250),
    (0, 250), (6.5, 8), (0, 70), (0, 20), (0, 7), (0, 600), (0, 150), (0, 200), (0, 1000), (0, 50), (0, 100),
    (0, 90), (50, 250), (0, 300),
)  # fmt: skip
"""The range of each of them in a person: the scores' own ends, otherwise round numbers about what is survived. In
the units of the tables: ml a day, thousands per microlitre, degrees Celsius, per minute, mmol/l, mmHg, %, mg/dl,
g/dl, years, cm, kg. A value beyond them counts as the end."""

FLAGS = (
    "intubated", "vent", "dialysis", "thrombolytics", "aids", "hepaticfailure", "lymphoma", "metastaticcancer",
    "leukemia", "immunosuppression", "cirrhosis", "diabetes", "readmit", "electivesurgery",
)  # fmt: skip
"""0 or 1; `electivesurgery` is blank for stays without surgery, which is 0."""

STAY_COLUMNS = (*MEASURED, *FLAGS, "gender")
"""The columns that the features are made of."""

KEPT = ("region", "gender", "ethnicity", HOSPITAL, PERSON)
NOT_MEASURED = -1.0
OLDEST, OLDEST_AGE = "> 89", 90.0
UNKNOWN = "unknown"
OF_PATIENT = "admissionheight"
"""A column that no table but `patient`, or the one table, has."""

NAMES = (*MEASURED, *(f"{name} missing" for name in MEASURED), *FLAGS, "female")
SCHEMA = FeatureSchema(
    (len(NAMES),),
    2,
    tuple(range(len(MEASURED))),
    NAMES,
    ranges=tuple((float(least), float(greatest)) for least, greatest in RANGES),
)


@dataclass(frozen=True, slots=True)
class _Part:
    """One table of several that are joined: which of its rows belongs to each stay."""

    table: TextTable
    rows: NDArray[np.int64] = field(repr=False)
    faults: Faults


def planned_schema(stated: EicuData, task: TaskSection) -> FeatureSchema:
    """Return the schema of a stay."""
    return SCHEMA


def read(stated: EicuData, task: TaskSection, paths: DataPaths, extra: tuple[str, ...]) -> FileRecords:
    """Return the stays of a folder."""
    return FileRecords(Splits(load_eicu(paths.folder, stated, extra)))


def load_eicu(folder: Path, spec: EicuData, extra: Collection[str]) -> Dataset:
    """Return one record for every stay, NaN where something was not measured.

    Args:
        folder: holds the tables as .csv or .csv.gz.
        spec: the plan's description.
        extra: columns to keep raw beside those that the plan keeps.

    Raises:
        DataError: a table or column is missing, or a value cannot be read.
    """
    kept = tuple(dict.fromkeys((*KEPT, *spec.keep, *extra)))
    parts = _read(folder)
    _require(parts, (*MEASURED, *FLAGS, OUTCOME, *kept))
    features = _features(parts)
    outcome = _holder(parts, OUTCOME)
    stated = outcome.table.columns[OUTCOME]
    outcome.faults.add(
        OUTCOME, "neither Alive, Expired nor blank", ~np.isin(stated, ("", *OUTCOMES)), "correct it"
    )
    for part in parts:
        part.faults.refuse()
    labels = (_texts(parts, OUTCOME) == OUTCOMES[1]).astype(np.int64)
    whole = Dataset(features, labels, SCHEMA, {name: _texts(parts, name) for name in kept}, PERSON)
    return whole.take(np.flatnonzero(np.isin(_texts(parts, OUTCOME), OUTCOMES)))


def stay_features(table: TextTable) -> NDArray[np.float64]:
    """Return (n, 63) features of stays whose outcome need not be known, NaN where something was not measured.

    Args:
        table: one row for each stay, with the columns `STAY_COLUMNS`.

    Raises:
        DataError: a column is missing, or a value cannot be read.
    """
    return _checked_features([_Part(table, np.arange(len(table)), Faults(table))], STAY_COLUMNS)


def _checked_features(parts: Sequence[_Part], columns: Sequence[str]) -> NDArray[np.float64]:
    _require(parts, columns)
    features = _features(parts)
    for part in parts:
        part.faults.refuse()
    return features


def joined_stays(
    folder: Path, kept: Collection[str]
) -> tuple[NDArray[np.float64], TextTable, dict[str, NDArray[np.str_]], int]:
    """Return the stays of a folder of tables, joined as `load_eicu` joins them, in the order of its records.

    Their outcome need not be known. The features are (n, 63), NaN where something was not measured; the table is
    `patient`, or the one table that has everything, with one row for each stay; raw texts (n,) come by the name of
    a column, the number of the stay before all others; and last how many stays of `patient` are not in the tables
    of APACHE variables.

    Args:
        folder: holds the tables as .csv or .csv.gz.
        kept: further columns to keep raw.

    Raises:
        DataError: a table or column is missing, there is no stay, or a value cannot be read.
    """
    names = tuple(dict.fromkeys((STAY, *kept)))
    parts = _read(folder)
    features = _checked_features(parts, (*STAY_COLUMNS, *names))
    if not len(features):
        raise DataError(
            f"{folder} has no stay that is in {PATIENT}, {VARIABLES} and {PREDICTORS}",
            "give tables of the same stays",
        )
    stays = _holder(parts, OF_PATIENT)
    texts = {name: (part := _holder(parts, name)).table.columns[name][part.rows] for name in names}
    return features, stays.table.take(stays.rows), texts, len(stays.table) - len(stays.rows)


def _features(parts: Sequence[_Part]) -> NDArray[np.float64]:
    measured = [_measured(_holder(parts, name), name) for name in MEASURED]
    flags = [_flag(_holder(parts, name), name) for name in FLAGS]
    female = (_texts(parts, "gender") == "Female").astype(np.float64)
    return np.stack([*measured, *(np.isnan(column) for column in measured), *flags, female], axis=1)


def _read(folder: Path) -> list[_Part]:
    """Return the tables with the rows of the stays that all of them have, in the order of the stays' numbers.

    Where two tables have a column of one name, the first one's is meant: `apachepredvar` repeats some columns of
    the others in codes of its own.
    """
    if (folder / JOINED).is_file() or (folder / f"{JOINED}.gz").is_file():
        table = read_table(find_file(folder, JOINED))
        return [_Part(table, np.arange(len(table)), Faults(table))]
    tables = {
        name: read_table(find_file(folder, f"{name}.csv")) for name in (VARIABLES, PATIENT, HOSPITALS, PREDICTORS)
    }
    positions = {name: _positions(tables[name], STAY) for name in (VARIABLES, PATIENT, PREDICTORS)}
    stays = sorted(
        set.intersection(*(set(place) for place in positions.values())), key=lambda stay: (len(stay), stay)
    )
    rows = {name: np.array([place[stay] for stay in stays], np.int64) for name, place in positions.items()}
    hospitals, stated = _positions(tables[HOSPITALS], HOSPITAL), tables[PATIENT].columns[HOSPITAL][rows[PATIENT]]
    unknown = sorted(set(stated.tolist()) - set(hospitals))
    if unknown:
        raise DataError(f"{tables[HOSPITALS].path} has no hospital {unknown[0]}, which {PATIENT} names")
    rows[HOSPITALS] = np.array([hospitals[hospital] for hospital in stated.tolist()], np.int64)
    return [_Part(table, rows[name], Faults(table)) for name, table in tables.items()]


def _positions(table: TextTable, key: str) -> dict[str, int]:
    """Return the row of every key, each of which must stand there once."""
    require_columns(table.path, list(table.columns), (key,))
    keys = table.columns[key].tolist()
    rows = {value: row for row, value in enumerate(keys)}
    if len(rows) < len(keys):
        raise DataError(f"{table.path} has {len(keys) - len(rows)} rows whose {key} stands there twice")
    return rows


def _require(parts: Sequence[_Part], names: Sequence[str]) -> None:
    header = {name for part in parts for name in part.table.columns}
    require_columns(Path(parts[0].table.path).parent, header, names)


def _holder(parts: Sequence[_Part], name: str) -> _Part:
    return next(part for part in parts if name in part.table.columns)


def _texts(parts: Sequence[_Part], name: str) -> NDArray[np.str_]:
    """Return one text for every stay, `unknown` where it is blank."""
    part = _holder(parts, name)
    texts = part.table.columns[name][part.rows]
    return np.where(texts == "", UNKNOWN, texts)


def _measured(part: _Part, name: str) -> NDArray[np.float64]:
    """Return one number for every stay, NaN where it is blank or -1."""
    texts = part.table.columns[name]
    oldest = texts == OLDEST if name == "age" else np.zeros(len(texts), np.bool_)
    values = numbers(part.table, name, (texts == "") | oldest, part.faults)
    values = np.where(oldest, OLDEST_AGE, values)
    return np.where(values == NOT_MEASURED, np.nan, values)[part.rows]


def _flag(part: _Part, name: str) -> NDArray[np.float64]:
    texts = part.table.columns[name]
    known = np.isin(texts, ("", "0", "1", "0.0", "1.0"))
    part.faults.add(name, "neither 0, 1 nor blank", ~known, "correct it")
    return np.where(np.isin(texts, ("1", "1.0")), 1.0, 0.0)[part.rows]
