"""Records of persons who have withdrawn are as if they were not in the source, bit for bit and in every source."""

import sqlite3
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from fedfair.errors import DataError, FedfairError, PlanError, StateError
from fedfair.ids import ParticipantId
from fedfair.policy.site_config import SiteConfig
from fedfair.tables.dataset import Splits
from fedfair.tables.source import read_site_records
from fedfair.withdrawal.owners import RecordOwners
from fedfair.withdrawal.tombstone_file import TombstoneFile, owners_of
from fedfair.withdrawal.tombstones import Tombstone
from tests import plans

ROWS = 70
HEADER = "patient,ward,age,died"
TABLE = {
    "label": "died",
    "numeric": ["age"],
    "categorical": {"ward": ["a", "b"]},
    "missing": "mean",
    "missing_values": [""],
}
GONE = ("007", "Zoë", "p 20", "p 41", "p 69")


def lines(*gone: str) -> list[str]:
    """Return a table with several rows of some persons, without the rows of others."""
    names = {0: "7", 1: "007", 2: "Zoë", 3: "Zoe", 30: "007", 66: "Zoë"}
    rows = [
        (names.get(row, f"p {row}"), "abc"[row % 3], "" if row % 11 == 5 else str(20 + row)) for row in range(ROWS)
    ]
    told = (f"{name},{ward},{age},{row % 2}" for row, (name, ward, age) in enumerate(rows) if name not in gone)
    return [HEADER, *told]


def withdraw(folder: Path, *persons: str) -> SiteConfig:
    """Return a site of which persons have withdrawn."""
    file = TombstoneFile(folder / "withdrawals" / "clinic-a.jsonl")
    key = file.made_key()
    file.record([Tombstone(key.full_hash(person), "2030-01-01T00:00:00+00:00") for person in persons])
    return site(folder, {"train": "own.csv", "record_id": "patient"})


def site(folder: Path, data: Mapping[str, object]) -> SiteConfig:
    stated = {"collaborator": "clinic-a", "data": data, "withdrawals": str(folder / "withdrawals/clinic-a.jsonl")}
    return SiteConfig.model_validate(stated)


def read(own: SiteConfig, folder: Path, table: Mapping[str, object] = TABLE, **task: object) -> Splits:
    held = {"test_fraction": 0.2, "validation_fraction": 0.2}
    stated = plans.parsed(("clinic-a", "clinic-b"), task={"data": {"csv": table}, **held, **task})
    return read_site_records(stated, own, ParticipantId("clinic-a"), folder).splits


def same(found: Splits, expected: Splits) -> None:
    """Compare bits; who owns a record is not part of what is trained on."""
    assert found.parts.keys() == expected.parts.keys()
    for name, part in found.parts.items():
        other = expected.parts[name]
        assert part.features.tobytes() == other.features.tobytes()
        assert part.labels.tobytes() == other.labels.tobytes()
        assert part.columns.keys() == other.columns.keys()
        assert part.schema == other.schema
    if found.survey is not None and expected.survey is not None:
        assert np.array_equal(found.survey.header, expected.survey.header)


def write(folder: Path, kind: str, rows: list[str]) -> dict[str, object]:
    """Write a table in one form; return what a site says of its data."""
    if kind == "sql":
        path = folder / "own.sqlite"
        path.unlink(missing_ok=True)
        with sqlite3.connect(path) as database:
            database.execute("CREATE TABLE t (patient TEXT, ward TEXT, age REAL, died INTEGER)")
            values = [[text or None for text in row.split(",")] for row in rows[1:]]
            database.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", values)
        query = "SELECT patient, ward, age, died FROM t"
        return {"sql": {"url": f"sqlite:///{path}", "query": query}, "record_id": "patient"}
    if kind == "parquet":
        pandas = pytest.importorskip("pandas")
        cells = [row.split(",") for row in rows[1:]]
        frame = pandas.DataFrame(cells, columns=HEADER.split(","))
        frame["age"] = pandas.to_numeric(frame["age"].replace("", None))
        frame.to_parquet(folder / "own.parquet")
        return {"train": "own.parquet", "record_id": "patient"}
    text = "\n".join(rows)
    if kind == "quoted":
        # Fields that pandas is not given, so that they are read one by one.
        text = text.replace("p 5,", '"p ""5""",')
    (folder / "own.csv").write_text(text + "\n", encoding="utf-8")
    return {"train": "own.csv", "record_id": "patient"}


@pytest.mark.parametrize("kind", ["csv", "quoted", "parquet", "sql"])
def test_what_is_read_is_what_a_table_without_these_rows_would_give(tmp_path: Path, kind: str) -> None:
    withdraw(tmp_path, *GONE)
    found = read(site(tmp_path, write(tmp_path, kind, lines())), tmp_path)
    kept = write(tmp_path, kind, lines(*GONE))
    expected = read(SiteConfig.model_validate({"collaborator": "clinic-a", "data": kept}), tmp_path)
    same(found, expected)
    assert found.records == ROWS - 7
    assert found.train.owners is not None
    assert expected.train.owners is None


def test_the_columns_of_the_records_and_their_order_do_not_depend_on_the_column_of_owners(tmp_path: Path) -> None:
    withdraw(tmp_path)
    for kind in ("csv", "sql"):
        stated = write(tmp_path, kind, lines())
        without = {name: value for name, value in stated.items() if name != "record_id"}
        same(read(site(tmp_path, stated), tmp_path), read(site(tmp_path, without), tmp_path))


@pytest.mark.parametrize(
    ("person", "rows"), [("7", 1), ("007", 2), (" 007 ", 2), ("Zoë", 2), ("Zoe\u0308", 2), ("zoë", 0), ("7.0", 0)]
)
def test_an_identifier_is_its_text_whatever_it_looks_like(tmp_path: Path, person: str, rows: int) -> None:
    own = withdraw(tmp_path, person)
    write(tmp_path, "csv", lines())
    assert read(own, tmp_path).records == ROWS - rows


def test_a_whole_number_of_a_typed_source_is_withdrawn_by_its_plain_text(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    pandas.DataFrame(
        {"patient": [*range(ROWS - 1), None], "ward": "a", "age": range(ROWS), "died": [0, 1] * (ROWS // 2)}
    ).to_parquet(tmp_path / "own.parquet")
    withdraw(tmp_path, "7", "12")
    own = site(tmp_path, {"train": "own.parquet", "record_id": "patient"})
    # The record without a number is nobody's, and stays.
    assert read(own, tmp_path).records == ROWS - 2


def test_a_column_that_is_used_as_a_number_still_has_its_texts(tmp_path: Path) -> None:
    own = withdraw(tmp_path, "007")
    (tmp_path / "own.csv").write_text(
        "\n".join(["patient,age,died", *(f"00{row},{row},{row % 2}" for row in range(60))])
    )
    found = read(own, tmp_path, {"label": "died", "numeric": ["patient", "age"]})
    assert found.records == 59


def test_the_plans_filters_come_after(tmp_path: Path) -> None:
    own = withdraw(tmp_path, *GONE)
    table = {**TABLE, "rows": {"ward": ["a"]}}
    write(tmp_path, "csv", lines())
    found = read(own, tmp_path, table)
    write(tmp_path, "csv", lines(*GONE))
    same(
        found,
        read(
            SiteConfig.model_validate({"collaborator": "clinic-a", "data": {"train": "own.csv"}}), tmp_path, table
        ),
    )


def test_whose_each_record_is_goes_along_to_its_split(tmp_path: Path) -> None:
    own = withdraw(tmp_path, *GONE)
    write(tmp_path, "csv", lines())
    owners = owners_of(own)
    assert owners is not None
    splits = read(own, tmp_path, {**TABLE, "keep": ["patient"]})
    for part in splits.parts.values():
        assert part.owners is not None
        assert part.owners.tolist() == owners.key.names(part.columns["patient"]).tolist()


def module_read(folder: Path, name: str, columns: str) -> Splits:
    """Return the records of a function of a module that no other test has."""
    (folder / f"{name}.py").write_text(
        "import numpy as np\n"
        "from fedfair.plan.feature_schema import FeatureSchema\n"
        "from fedfair.tables.dataset import Dataset\n"
        "def load(folder):\n"
        "    schema = FeatureSchema((1,), 2, (0,))\n"
        "    names = np.array([f'p {row}' for row in range(60)])\n"
        f"    return Dataset(np.arange(60.0)[:, None], np.arange(60) % 2, schema, {columns})\n"
    )
    task = {"data": f"{name}:load", "input_shape": [1], "classes": 2}
    own = site(folder, {"root": ".", "record_id": "patient"})
    stated = plans.parsed(("clinic-a", "clinic-b"), task=task)
    return read_site_records(stated, own, ParticipantId("clinic-a"), folder).splits


def test_a_function_that_says_whose_its_records_are_loses_them_too(tmp_path: Path) -> None:
    withdraw(tmp_path, "p 3", "p 59")
    splits = module_read(tmp_path, "loader_with_names", "{'patient': names}")
    assert len(splits.train) == 58
    assert 3.0 not in splits.train.features


def test_records_of_which_nobody_can_tell_whose_they_are_are_not_read(tmp_path: Path) -> None:
    withdraw(tmp_path, "p 3")
    with pytest.raises(DataError, match="column 'patient': 1 persons have withdrawn at this site") as caught:
        module_read(tmp_path, "loader_without_names", "{}")
    assert "data.record_id" in caught.value.remedy
    write(tmp_path, "csv", lines())
    with pytest.raises(DataError, match="nothing says whose a record is: none can be left out, so none is read"):
        read(site(tmp_path, {"train": "own.csv"}), tmp_path)
    with pytest.raises(DataError, match=r"own\.csv has no column 'patien' \(did you mean 'patient'\?\)"):
        read(site(tmp_path, {"train": "own.csv", "record_id": "patien"}), tmp_path)


def test_a_data_set_that_is_dealt_by_chance_is_not_read_without_some_of_it(tmp_path: Path) -> None:
    withdraw(tmp_path, "p 3")
    with pytest.raises(PlanError, match="the plan divides one data set by chance"):
        read(site(tmp_path, write(tmp_path, "csv", lines())), tmp_path, partition={"scheme": "label"})


def test_files_that_are_damaged_or_gone_stop_every_reading(tmp_path: Path) -> None:
    own = withdraw(tmp_path, "p 4", "p 5", "p 6")
    write(tmp_path, "csv", lines())
    path, key = tmp_path / "withdrawals/clinic-a.jsonl", tmp_path / "withdrawals/clinic-a.key"
    whole, secret = path.read_bytes(), key.read_bytes()
    first, second, third = whole.splitlines(keepends=True)
    for damaged in (
        second + third,
        first + third,
        first + second.replace(b"2030", b"2031") + third,
        b"{}\n" + whole,
    ):
        path.write_bytes(damaged)
        with pytest.raises(StateError, match=r"line [12] (does not continue|is no entry)"):
            read(own, tmp_path)
    path.write_bytes(whole)
    for left in (None, secret[:31]):
        key.unlink() if left is None else key.write_bytes(left)
        with pytest.raises(FedfairError, match=r"its key, .*clinic-a\.key, (is gone|has 31 bytes)") as caught:
            read(own, tmp_path)
        assert "newest backup" in caught.value.remedy
    key.write_bytes(secret)
    assert read(own, tmp_path).records == ROWS - 3


def test_nothing_that_is_kept_shows_an_identifier_or_the_key(tmp_path: Path) -> None:
    own = withdraw(tmp_path, "p 3")
    owners = owners_of(own)
    assert isinstance(owners, RecordOwners)
    assert (tmp_path / "withdrawals/clinic-a.key").stat().st_mode & 0o077 == 0
    assert (tmp_path / "withdrawals/clinic-a.jsonl").stat().st_mode & 0o077 == 0
    shown = repr(owners) + (tmp_path / "withdrawals/clinic-a.jsonl").read_text()
    assert "p 3" not in shown
    assert owners.key.secret.hex() not in shown
