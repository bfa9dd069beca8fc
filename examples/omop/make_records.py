"""A synthetic hospital in the tables of the OMOP Common Data Model, the same on every machine.

Usage: python examples/omop/make_records.py NAME --to sqlite:FILE | duckdb:FILE | postgresql | csv:FILE

NAME is north, south or coast. Nobody in these tables lives. `postgresql` prints statements for psql; `csv` writes
what the query of cohort.sql returns, for a simulation.
"""

from __future__ import annotations

import argparse
import csv
import math
import random
import sqlite3
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

QUERY = Path(__file__).resolve().parent / "cohort.sql"

MAN, WOMAN = 8507, 8532
HEART_FAILURE, DIABETES, HYPERTENSION, FIBRILLATION, COPD = 316139, 201826, 320128, 313217, 255573
SYSTOLIC, BODY_MASS, HBA1C, CREATININE = 3004249, 3038553, 3004410, 3016723
"""Standard concepts of OMOP: sexes, conditions of SNOMED, measurements of LOINC."""

TABLES: Mapping[str, str] = {
    "person": "person_id INTEGER PRIMARY KEY, gender_concept_id INTEGER NOT NULL, year_of_birth INTEGER NOT NULL",
    "condition_occurrence": (
        "condition_occurrence_id INTEGER PRIMARY KEY, person_id INTEGER NOT NULL, "
        "condition_concept_id INTEGER NOT NULL, condition_start_date DATE NOT NULL"
    ),
    "measurement": (
        "measurement_id INTEGER PRIMARY KEY, person_id INTEGER NOT NULL, measurement_concept_id INTEGER NOT NULL, "
        "measurement_date DATE NOT NULL, value_as_number NUMERIC"
    ),
}

Row = tuple[int | float | str | None, ...]


@dataclass(frozen=True)
class Hospital:
    """How many patients it has, which share of them are women, and how old they are on average."""

    patients: int
    women: float
    age: float


HOSPITALS: Mapping[str, Hospital] = {
    "north": Hospital(2000, 0.35, 58.0),
    "south": Hospital(1400, 0.25, 63.0),
    "coast": Hospital(900, 0.45, 71.0),
}


@dataclass
class Records:
    """The rows of the three tables."""

    rows: dict[str, list[Row]] = field(default_factory=lambda: {name: [] for name in TABLES})

    def add(self, table: str, *values: float | str | None) -> None:
        """Add a row; all but persons get the next number as their id."""
        rows = self.rows[table]
        rows.append(values if table == "person" else (len(rows) + 1, *values))


def records_of(name: str) -> Records:
    """Return the records of a hospital."""
    hospital, made, chance = HOSPITALS[name], Records(), random.Random(f"omop {name}")  # noqa: S311 - nobody's records
    for person in range(1, hospital.patients + 1):
        _add_patient(made, person, hospital, chance)
    return made


def _add_patient(made: Records, person: int, hospital: Hospital, chance: random.Random) -> None:
    woman = chance.random() < hospital.women
    age = round(min(95, max(30, chance.gauss(hospital.age, 13))))
    made.add("person", person, WOMAN if woman else MAN, 2020 - age)
    older = (age - 60) / 13
    body_mass = chance.gauss(27, 4.5)
    systolic = chance.gauss(132 + 4 * older, 15)
    hba1c = chance.gauss(5.7 + 0.12 * (body_mass - 27), 0.6)
    creatinine = max(0.4, chance.gauss(0.8 if woman else 1.0, 0.2) + 0.05 * older)
    ill = {
        HYPERTENSION: systolic > 140,
        DIABETES: hba1c > 6.4,
        FIBRILLATION: chance.random() < 1 / (1 + math.exp(2.6 - 0.9 * older)),
        COPD: chance.random() < 0.12,
    }
    for concept, present in ill.items():
        if present:
            made.add(
                "condition_occurrence", person, concept, f"201{chance.randint(5, 9)}-0{chance.randint(1, 9)}-15"
            )
    for concept, value, spread, missing in (
        (SYSTOLIC, systolic, 4.0, 0.03),
        (BODY_MASS, body_mass, 0.4, 0.05),
        (HBA1C, hba1c, 0.1, 0.25),
        (CREATININE, creatinine, 0.05, 0.05),
    ):
        for month in (2, 6, 10) if chance.random() > missing else ():
            measured = round(chance.gauss(value, spread), 1)
            made.add("measurement", person, concept, f"2019-{month:02}-10", measured)
    if chance.random() < 0.03:
        # Heart failure that was there before: not in the cohort.
        made.add("condition_occurrence", person, HEART_FAILURE, "2018-03-15")
    elif chance.random() < _risk(ill, older, (body_mass - 27) / 4.5, (creatinine - 0.95) / 0.22, woman=woman):
        made.add("condition_occurrence", person, HEART_FAILURE, f"2020-0{chance.randint(1, 9)}-20")


def _risk(ill: Mapping[int, bool], older: float, heavier: float, creatinine: float, *, woman: bool) -> float:
    """Return the chance of a heart failure within the year, which has other causes in women than in men."""
    if woman:
        logit = -4.4 + 3.2 * older + 5.4 * heavier + 3.8 * ill[HYPERTENSION]
    else:
        logit = -4.8 + 4.8 * older + 0.8 * heavier + 4.2 * creatinine
        logit += 3.8 * ill[FIBRILLATION] + 1.5 * ill[DIABETES]
    return 1 / (1 + math.exp(-logit))


def statements(made: Records) -> Iterator[str]:
    """Yield the statements that make and fill the tables, in the SQL of PostgreSQL."""
    yield "BEGIN;"
    for table, columns in TABLES.items():
        yield f"CREATE TABLE {table} ({columns});"
        for row in made.rows[table]:
            yield f"INSERT INTO {table} VALUES ({', '.join(map(repr, row))});"  # noqa: S608 - made above
    yield "COMMIT;"


def write(made: Records, kind: str, file: Path) -> None:
    """Write the tables to a new file, as SQLite or DuckDB keep them; or the result of the query as CSV."""
    if kind == "csv":
        with sqlite3.connect(":memory:") as database:
            _fill(database, made)
            found = database.execute(QUERY.read_text(encoding="utf-8"))
            with file.open("w", encoding="utf-8", newline="") as table:
                writer = csv.writer(table)
                writer.writerow(column[0] for column in found.description)
                writer.writerows(found)
        database.close()
        return
    if kind == "sqlite":
        with sqlite3.connect(file) as database:
            _fill(database, made)
        database.close()
        return
    import duckdb
    import pandas as pd

    with duckdb.connect(str(file)) as made_there:
        for table, columns in TABLES.items():
            made_there.execute(f"CREATE TABLE {table} ({columns})")
            rows = pd.DataFrame(made.rows[table])  # noqa: F841 - the statement names it
            made_there.execute(f"INSERT INTO {table} SELECT * FROM rows")  # noqa: S608 - made above


def _fill(database: sqlite3.Connection, made: Records) -> None:
    for table, columns in TABLES.items():
        database.execute(f"CREATE TABLE {table} ({columns})")
        marks = ", ".join("?" * len(made.rows[table][0]))
        database.executemany(f"INSERT INTO {table} VALUES ({marks})", made.rows[table])  # noqa: S608 - made above


def main() -> int:
    """Write the records of one hospital; return the exit status."""
    parser = argparse.ArgumentParser(description="A synthetic hospital in the tables of OMOP.")
    parser.add_argument("name", choices=HOSPITALS)
    parser.add_argument("--to", required=True, help="sqlite:FILE, duckdb:FILE, csv:FILE or postgresql")
    asked = parser.parse_args()
    kind, _, file = asked.to.partition(":")
    if kind == "postgresql" and not file:
        sys.stdout.writelines(f"{statement}\n" for statement in statements(records_of(asked.name)))
        return 0
    if kind not in {"sqlite", "duckdb", "csv"} or not file:
        print(f"--to {asked.to} is none of sqlite:FILE, duckdb:FILE, csv:FILE and postgresql", file=sys.stderr)
        return 2
    if Path(file).exists():
        print(f"{file} exists; it was left alone\n  -> name another file", file=sys.stderr)
        return 1
    write(records_of(asked.name), kind, Path(file))
    return 0


if __name__ == "__main__":
    sys.exit(main())
