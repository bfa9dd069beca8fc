"""What a site is shown of its own columns: one mistake at a time, and counts that a slow reader agrees with."""

import ast
import csv
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedfair.errors import DataError
from fedfair.ids import ParticipantId
from fedfair.policy.site_config import SiteConfig
from fedfair.tables.profile import CaseVariant, ColumnProfile, DataProfile, share
from fedfair.tables.source import read_site_records
from tests import plans
from tests.conftest import REPOSITORY

TABLE = {
    "label": "died", "label_values": ["no", "yes"], "numeric": ["age"], "missing": "zero",
    "categorical": {"marital": ["married", "single"]},
}  # fmt: skip
GOOD = "age,marital,died\n40,married,no\n50,single,yes\n60,married,no\n"
VALUES = ("married", "single", "Married", "MARRIED", "divorced", "", "?", "NA")


def profile(folder: Path, text: str, test: str | None = None, **table: object) -> DataProfile:
    files = {"train": str(folder / "train.csv")}
    (folder / "train.csv").write_text(text)
    if test is not None:
        (folder / "test.csv").write_text(test)
        files["test"] = str(folder / "test.csv")
    plan = plans.parsed(task={"data": {"csv": {**TABLE, **table}}})
    config = SiteConfig.model_validate({"collaborator": "clinic-a", "data": files})
    return read_site_records(plan, config, ParticipantId("clinic-a"), folder).profile


def words(found: DataProfile) -> dict[str, str]:
    return {column.name: column.words for column in found.columns if column.words}


def test_values_that_the_plan_does_not_name_are_counted_as_other(tmp_path: Path) -> None:
    found = profile(tmp_path, GOOD.replace("married", "Married").replace("single", "SINGLE"))
    variants = (CaseVariant("Married", "married", 2), CaseVariant("SINGLE", "single", 1))
    assert found.columns[1] == ColumnProfile("marital", 3, 0, 3, variants)
    assert words(found) == {
        "marital": "other 100%; 'Married' differs only in case from 'married'; "
        "'SINGLE' differs only in case from 'single'"
    }
    assert found.columns[1].is_doubtful
    found = profile(tmp_path, GOOD.replace("single", "divorced"))
    assert words(found) == {"marital": "other 33%"}
    assert not found.columns[1].is_doubtful


def test_missing_values_are_counted_but_those_that_the_plan_names(tmp_path: Path) -> None:
    text = GOOD.replace("40,married", "NA,?").replace("50,", ",")
    assert words(profile(tmp_path, text)) == {"age": "missing 67%", "marital": "missing 33%"}
    for policy in ("own", "other"):
        found = profile(tmp_path, text, missing="mean", missing_of={"marital": policy})
        assert words(found) == {"age": "missing 67%", "marital": "missing 33%"}
    found = profile(tmp_path, GOOD.replace("single", "?"), categorical={"marital": ["married", "?"]})
    assert words(found) == {}


def test_labels_of_one_class_or_in_another_case_are_named_and_sound_files_are_not(tmp_path: Path) -> None:
    found = profile(tmp_path, GOOD)
    assert words(found) == {}
    assert found.splits == {"train": 3}
    assert found.labels == {"no": 2, "yes": 1}
    assert found.label_words == "no 67%, yes 33%"
    assert not any(column.is_doubtful for column in found.columns)
    found = profile(tmp_path, GOOD.replace("yes", "no"))
    assert found.one_class == "no"
    assert found.labels == {"no": 3, "yes": 0}
    assert profile(tmp_path, GOOD).one_class is None
    with pytest.raises(DataError, match="'Yes' differs only in case from 'yes'"):
        profile(tmp_path, GOOD.replace("yes", "Yes"))


def test_files_are_counted_together_and_sources_of_numbers_show_their_gaps(tmp_path: Path) -> None:
    found = profile(tmp_path, GOOD, GOOD.replace("married", "Married").replace("60", ""))
    assert found.splits == {"train": 3, "test": 3}
    assert found.labels == {"no": 4, "yes": 2}
    assert found.columns == (
        ColumnProfile("age", 6, 1),
        ColumnProfile("marital", 6, 0, 2, (CaseVariant("Married", "married", 2),)),
    )
    (tmp_path / "own.py").write_text(
        "import numpy as np\n"
        "def load(folder):\n"
        "    return np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), np.array([0, 0, 1])\n"
    )
    plan = plans.parsed(task={"data": "own:load", "input_shape": [2], "classes": 2})
    config = SiteConfig.model_validate({"collaborator": "clinic-a"})
    found = read_site_records(plan, config, ParticipantId("clinic-a"), tmp_path).profile
    assert found == DataProfile(
        {"train": 3}, (ColumnProfile("feature 0", 3, 0), ColumnProfile("feature 1", 3, 0)), {"0": 2, "1": 1}
    )


@given(
    rows=st.lists(
        st.tuples(st.sampled_from(("1", "2.5", "", "?")), st.sampled_from(VALUES), st.sampled_from(("no", "yes"))),
        min_size=1,
        max_size=30,
    )
)
def test_the_profile_is_that_of_a_slow_obvious_count(
    rows: list[tuple[str, str, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("profile")
    with (folder / "rows.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("age", "marital", "died"), *rows])
    found = profile(folder, (folder / "rows.csv").read_text())
    age, marital = found.columns
    assert (age.records, age.missing, age.other) == (len(rows), sum(row[0] in ("", "?") for row in rows), 0)
    missing = [row for row in rows if row[1] in ("", "?", "NA")]
    other = [row for row in rows if row[1] in ("Married", "MARRIED", "divorced")]
    assert (marital.records, marital.missing, marital.other) == (len(rows), len(missing), len(other))
    assert {(one.found, one.named, one.records) for one in marital.case_variants} == {
        (text, "married", sum(row[1] == text for row in rows)) for text in ("Married", "MARRIED")
    } - {(text, "married", 0) for text in ("Married", "MARRIED")}
    assert found.labels == {label: sum(row[2] == label for row in rows) for label in ("no", "yes")}


@given(whole=st.integers(1, 10_000), fraction=st.floats(0, 1))
def test_only_none_is_zero_percent_and_only_all_is_a_hundred(whole: int, fraction: float) -> None:
    part = round(whole * fraction)
    assert (share(part, whole) == "0%") == (part == 0)
    assert (share(part, whole) == "100%") == (part == whole)


READERS = {
    "fedfair/tables/table_reader.py", "fedfair/tables/source_modules.py", "fedfair/tables/sources/table.py",
    "fedfair/tables/source.py", "fedfair/prediction/model_inputs.py", "collaborator/data_history.py",
    "collaborator/preflight.py", "collaborator/preparation.py", "collaborator/run_recording.py",
    "fedfair/cli/data.py", "fedfair/tables/column_check.py", "fedfair/tables/survey_faults.py",
    # What reads records in a process of its own tells the one of the same site; people see it before they decide.
    "collaborator/computing/computation.py", "collaborator/computing/messages.py",
    "collaborator/study_review/parts.py",
}  # fmt: skip
"""Who may know a profile: what reads a site's data, and what shows it to the site's own operator."""


def test_nothing_that_sends_knows_of_a_profile() -> None:
    packages = ("fedfair", "collaborator", "aggregator")
    texts = {path: path.read_text() for name in packages for path in (REPOSITORY / name).rglob("*.py")}
    knowing = {
        str(path.relative_to(REPOSITORY))
        for path, text in texts.items()
        if "fedfair.tables.profile" in text
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom) and node.module == "fedfair.tables.profile"
    }
    assert knowing <= READERS
