"""A site's own file in its own form: other marks and names, the very same records."""

import sqlite3
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedfair.errors import DataError, PlanError
from fedfair.ids import ParticipantId
from fedfair.plan.csv_table import CsvData
from fedfair.plan.schema import Plan
from fedfair.plan.validation_messages import validated
from fedfair.plan.yaml_reader import parse_document
from fedfair.policy.site_config import SiteConfig
from fedfair.policy.site_format import FormatSection
from fedfair.simulation.simulate import simulate_sites
from fedfair.tables.column_check import check_data
from fedfair.tables.dataset import Splits
from fedfair.tables.row_order import digest_in_order, record_hashes
from fedfair.tables.site_form import check_form, site_table
from fedfair.tables.source import SiteRecords, read_site_records
from tests import plans

NAME = ParticipantId("clinic-a")
TABLE = {
    "label": "died", "label_values": ["no", "yes"], "numeric": ["age", "weight", "birth"],
    "dates": {"birth": "%Y-%m-%d"}, "categorical": {"sex": ["F", "M"], "ward": ["A", "Ä"]},
    "ranges": {"age": [0, 120], "weight": [0, 1e6], "birth": [1900, 2030]}, "missing": "mean",
    "missing_of": {"ward": "own", "age": "zero"}, "missing_values_of": {"weight": [-1]}, "rows": {"year": [2018]},
    "keep": ["sex"],
}  # fmt: skip
FORM = {
    "separator": ";", "decimal": ",", "thousands": ".", "encoding": "latin-1", "comment": "#", "dates": "%d.%m.%Y",
    "missing_values": ["k.A.", ""],
    "columns": {"age": "Alter_Jahre", "birth": "Geburt", "ward": "Stätion", "sex": "age", "died": "verstorben"},
    "missing_values_of": {"weight": [-9]},
}  # fmt: skip


def lines(*, own: bool) -> list[str]:
    """Return the same records as the plan has files, or in a form of a site's own."""
    found = ["verstorben;age;weight;Geburt;Alter_Jahre;Stätion;year;note" if own else
             "age,weight,birth,sex,ward,died,year"]  # fmt: skip
    for row in range(40):
        age, weight = f"{30 + row}.5", f"{1200 + row}.25"
        day, month, year = 1 + row % 28, 1 + row % 12, 1950 + row
        sex, ward, died = "FM"[row % 2], ("A", "Ä", "B", "")[row % 4], ("no", "yes")[row % 3 == 0]
        if row == 5:
            age = ""
        if row == 6:
            weight = "-1"
        taken = 2018 if row % 10 else 2017
        if own:
            age = age.replace(".", ",") or "k.A."
            weight = "-9" if weight == "-1" else f"1.{weight[1:].replace('.', ',')}"
            born = f"{day:02}.{month:02}.{year}"
            found.append(f"{died};{sex};{weight};{born};{age};{ward or 'k.A.'};{taken};x,y")
        else:
            found.append(f"{age},{weight},{year}-{month:02}-{day:02},{sex},{ward},{died},{taken}")
    return found


def stated(**table: object) -> Plan:
    task = {"data": {"csv": TABLE | table}, "test_fraction": 0.2, "standardize": "ranges"}
    return plans.parsed(task=task, training={"seed": 7})


def site(**data: object) -> SiteConfig:
    return SiteConfig.model_validate({"collaborator": NAME, "data": data})


def read(folder: Path, plan: Plan | None = None, **data: object) -> SiteRecords:
    return read_site_records(plan or stated(), site(**data), NAME, folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the same records in both forms, as text and as Parquet."""
    folder = tmp_path_factory.mktemp("forms")
    (folder / "plan.csv").write_text("\n".join(lines(own=False)) + "\n")
    (folder / "own.csv").write_text("\n".join(["# remark", *lines(own=True)]) + "\n", encoding="latin-1")
    frame = pd.read_csv(folder / "plan.csv", keep_default_na=False, na_values={"age": [""]})
    names = {"age": "Alter_Jahre", "birth": "Geburt", "ward": "Stätion", "sex": "age", "died": "verstorben"}
    frame.rename(columns=names).to_parquet(folder / "own.parquet")
    return folder


def digests(splits: Splits) -> list[str]:
    """Return a digest of the bits of every part's features, labels and kept columns."""
    parts = [part for part in (splits.train, splits.validation, splits.test) if part is not None]
    return [digest_in_order(record_hashes(part)) for part in parts]


def assert_same(own: SiteRecords, plain: SiteRecords) -> None:
    assert digests(own.splits) == digests(plain.splits)
    assert own.profile == plain.profile
    for a, b in ((own.splits.train, plain.splits.train), (own.splits.test, plain.splits.test)):
        assert a is not None
        assert b is not None
        assert a.schema == b.schema
        assert a.features.tobytes() == b.features.tobytes()
        assert {name: values.tolist() for name, values in a.columns.items()} == {
            name: values.tolist() for name, values in b.columns.items()
        }


def test_parquet_and_a_database_have_names_of_their_own(folder: Path) -> None:
    plain = read(folder, train="plan.csv")
    names = {"columns": FORM["columns"]}
    assert_same(read(folder, train="own.parquet", format=names), plain)
    base = folder / "own.sqlite"
    with sqlite3.connect(base) as connection:
        frame = pd.read_parquet(folder / "own.parquet")
        frame.to_sql("records", connection, index=False)
    connection.close()
    query = {"url": f"sqlite:///{base}", "query": "SELECT * FROM records ORDER BY Geburt"}
    from_base = read(folder, sql=query, format=names)
    assert_same(replace(from_base, profile=replace(from_base.profile, digests={})), plain)


def test_a_file_without_a_header_line_and_one_with_it_go_together(folder: Path, tmp_path: Path) -> None:
    header, *rows = lines(own=False)
    (tmp_path / "bare.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "plan.csv").write_text("\n".join([header, *rows]) + "\n")
    plain, names = read(folder, train="plan.csv"), header.split(",")
    assert_same(read(tmp_path, train="bare.csv", format={"columns": names}), plain)
    # The other way round: the plan's files have no header line, this one has.
    assert_same(read(tmp_path, stated(columns=names), train="plan.csv", format={"columns": {}}), plain)


def test_a_model_over_sites_of_two_forms_has_the_bits_of_one_form(folder: Path) -> None:
    plan = plans.parsed(
        task={"data": {"csv": TABLE}, "standardize": "secure", "test_fraction": 0.2},
        training={"rounds": 2, "local_steps": 2},
    )
    forms = [{"train": "plan.csv"}, {"train": "own.csv", "format": FORM}]
    models = []
    for second in forms:
        files = dict(zip(plans.NAMES, (forms[0], second, forms[0]), strict=True))
        federation = {
            ParticipantId(name): read_site_records(
                plan, SiteConfig.model_validate({"collaborator": name, "data": data}), ParticipantId(name), folder
            ).splits
            for name, data in files.items()
        }
        models.append(simulate_sites(plan, federation, folder).model.vector.tobytes())
    assert models[0] == models[1]


def test_a_survey_and_a_check_of_another_form_name_its_own_columns(folder: Path, tmp_path: Path) -> None:
    plan = plans.parsed(task={"data": {"csv": TABLE}, "standardize": "ranges", "survey": True})
    own, plain = (read(folder, plan, **data).splits.survey for data in
                  ({"train": "own.csv", "format": FORM}, {"train": "plan.csv"}))  # fmt: skip
    assert own is not None
    assert plain is not None
    assert np.array_equal(own.header, plain.header)
    assert [column.name for column in own.columns] == [column.name for column in plain.columns]
    text = (folder / "own.csv").read_text(encoding="latin-1")
    (tmp_path / "own.csv").write_text(text.replace("31,5", "alt"), encoding="latin-1")
    found = check_data(stated(), site(train="own.csv", format=FORM), NAME, tmp_path)
    (error,) = found.errors
    assert "column 'Alter_Jahre': not a finite number in 1 row (line 4: 'alt')" in error
    sound = check_data(stated(), site(train="own.csv", format=FORM), NAME, folder)
    assert (sound.errors, sound.unused) == ((), ("note",))
    assert [each.name for each in sound.numeric] == ["age", "weight", "birth"]


@pytest.mark.parametrize(
    ("form", "fault"),
    [
        ({"columns": {"Age": "x"}}, "columns: the plan has no column 'Age'; did you mean 'age'"),
        ({"columns": {"Alter": "age"}}, "columns: the plan has no column 'Alter'; the plan's columns are died"),
        ({"columns": {"age": "weight"}}, "columns: 'age' and 'weight' of the plan are both 'weight' of the file"),
        ({"columns": ["age", "sex"]}, "columns: does not list column 'died'"),
        ({"decimal": ",", "thousands": ",", "separator": ";"}, "thousands: is ',', and so is decimal"),
        ({"thousands": "."}, "thousands: is '.', and so is decimal"),
        ({"dates": "%d.%m"}, "dates.birth: '%d.%m' is no form of a date"),
        ({"dates": {"sex": "%Y"}}, "dates.sex: column 'sex' is not numeric"),
        ({"missing_values_of": {"died": [9]}}, "missing_values_of.died: column 'died' is no feature"),
        ({"missing_values": ["A"]}, "categorical.ward.0: value 'A' means a missing one"),
    ],
)
def test_a_form_that_does_not_go_with_the_plan_is_told_before_reading(form: dict[str, object], fault: str) -> None:
    def check() -> None:
        check_form(stated().task, validated(FormatSection, parse_document(str(form), Path("typed"))))

    with pytest.raises(PlanError) as raised:
        check()
    assert fault in raised.value.diagnostics().replace("\n  -> ", "; ")


def test_the_same_records_in_two_forms_are_the_same_and_a_missing_column_is_guessed(folder: Path) -> None:
    plain = read(folder, train="plan.csv")
    assert_same(read(folder, train="own.csv", format=FORM), plain)
    assert len(plain.splits.train) == 29
    with pytest.raises(DataError, match="no column"):
        read(folder, train="own.csv", format={**FORM, "columns": None})
    columns = {**FORM["columns"], "age": "alter_jahre"}  # type: ignore[dict-item]
    with pytest.raises(DataError, match=r"no column 'alter_jahre' \(did you mean 'Alter_Jahre'\?\)"):
        read(folder, train="own.csv", format={**FORM, "columns": columns})


def test_a_form_with_two_names_for_one_column_or_of_no_table_is_refused() -> None:
    with pytest.raises(PlanError, match=r"columns.weight: is 'x', and so is age -> name another column"):
        validated(FormatSection, parse_document("columns: {age: x, weight: x}", Path("typed")))
    with pytest.raises(PlanError, match=r"data.format: says how a table is written, and the plan describes no"):
        check_form(plans.parsed().task, FormatSection(separator=";"))


def test_keys_of_a_form_are_those_of_the_plan() -> None:
    table = CsvData(label="died", numeric="all")
    assert site_table(table, FormatSection(columns={"died": "tot"})).file.label == "tot"
    with pytest.raises(PlanError, match="no column 'pressure'") as raised:
        site_table(table, FormatSection(columns={"pressure": "Druck"}))
    assert "under numeric: all it knows no others" in raised.value.diagnostics()
    assert FormatSection.model_fields.keys() <= CsvData.model_fields.keys()
    table = CsvData.model_validate(TABLE)
    assert site_table(table, FormatSection()).file == table
    commented = CsvData.model_validate({**TABLE, "comment": "#", "thousands": ","})
    bare = site_table(commented, FormatSection(comment=None, thousands=None)).file
    assert (bare.comment, bare.thousands) == (None, None)
    assert site_table(commented, FormatSection()).file.thousands == ","
