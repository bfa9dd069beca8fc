"""A site with too few records reads none, whatever is in them, and its operator alone is told."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from fedfair.errors import DataError
from fedfair.ids import ParticipantId
from fedfair.plan.description import summary
from fedfair.plan.schema import Plan
from fedfair.policy.plan_check import PolicyError, check_policy
from fedfair.policy.site_config import SiteConfig, SitePolicy
from fedfair.policy.terms import AskedTerms
from fedfair.tables.source import SiteRecords, read_site_records
from tests import plans

RECORDS = 60
LINES = ["patient,ward,age,died", *(f"{row},{'ab'[row % 2]},{20 + row},{row % 2}" for row in range(RECORDS))]
TABLE = {"label": "died", "numeric": ["age"], "categorical": {"ward": ["a", "b"]}}
FEWEST = 20


def read(
    folder: Path,
    table: Mapping[str, object],
    *,
    fewest: int = FEWEST,
    lines: list[str] = LINES,
    names: tuple[str, ...] = ("clinic-a", "clinic-b"),
    **task: object,
) -> SiteRecords:
    (folder / "own.csv").write_text("\n".join(lines) + "\n")
    stated = plans.parsed(names, task={"data": {"csv": {**TABLE, **table}}, **task})
    own = SiteConfig.model_validate({"collaborator": "clinic-a", "data": {"train": "own.csv"}})
    return read_site_records(stated, own, ParticipantId("clinic-a"), folder, fewest=fewest)


@pytest.mark.parametrize(
    ("patients", "count"),
    [([7], 1), ([3, 14, 15, 9, 26], 5), ([1000], 0), (list(range(19)), 19)],
    ids=["one", "five", "none", "nineteen"],
)
def test_a_filter_that_picks_a_few_people_leaves_a_site_with_nothing(
    tmp_path: Path, patients: list[int], count: int
) -> None:
    found = read(tmp_path, {"rows": {"patient": patients}}, test_fraction=0.2, validation_fraction=0.2)
    assert (len(found.splits.train), found.splits.validation, found.splits.test) == (0, None, None)
    assert found.splits.train.schema.names == ("age", "ward=a", "ward=b", "ward=other")
    (words,) = found.withheld
    assert f"{count} training records of this site count under the plan, and policy.min_records is 20" in words


def test_filters_and_hold_outs_that_leave_few_people_are_left_out(tmp_path: Path) -> None:
    table = {"rows": {"patient": list(range(FEWEST))}}
    found, whole = read(tmp_path, table), read(tmp_path, table, fewest=0)
    assert len(found.splits.train) == FEWEST
    assert (found.splits.train.features == whole.splits.train.features).all()
    assert found.withheld == ()
    found = read(tmp_path, {}, test_fraction=0.2, validation_fraction=0.4)
    splits = found.splits
    assert (len(splits.train), splits.validation and len(splits.validation), splits.test) == (24, 24, None)
    assert found.withheld == (
        "12 test records of this site are fewer than policy.min_records, 20: they are in no sum",
    )
    found = read(tmp_path, {"rows": {"patient": list(range(22))}}, test_fraction=0.99)
    assert len(found.splits.train) == 0
    assert found.withheld


@pytest.mark.parametrize(
    "trap", [{"ranges": {"age": [0, 1]}}, {"label_values": ["yes", "no"]}], ids=["range", "labels"]
)
def test_no_value_of_the_only_holder_of_a_row_stops_its_start(tmp_path: Path, trap: dict[str, object]) -> None:
    """A plan whose values nobody has would tell who holds a row by who fails to start."""
    found = read(tmp_path, {"rows": {"patient": [7]}, **trap})
    assert len(found.splits.train) == 0
    with pytest.raises(DataError, match="cannot be used as it is"):
        read(tmp_path, {"rows": {"patient": list(range(FEWEST))}, **trap})


def test_a_few_people_have_no_survey_and_commands_that_stay_here_read_them(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="a label that the plan does not name"):
        read(tmp_path, {}, lines=["patient,ward,age,died", "1,a,30,maybe"])
    table = {"rows": {"patient": [7, 8]}, "ranges": {"age": [0, 120]}}
    survey = read(tmp_path, table, names=plans.NAMES, survey=True).splits.survey
    assert survey is not None
    assert not survey.header.any()
    assert len(read(tmp_path, {"rows": {"patient": [7]}}, fewest=0).splits.train) == 1
    with pytest.raises(DataError, match="none of its 60 rows has patient"):
        read(tmp_path, {"rows": {"patient": [1000]}}, fewest=0)


def chosen_by(**rows: list[object]) -> Plan:
    table = {**TABLE, "rows": rows}
    return plans.parsed(task={"data": {"csv": table}})


def test_rows_are_chosen_by_features_unless_a_site_says_otherwise() -> None:
    check_policy(AskedTerms(chosen_by(ward=["a"], age=[30, 31])), SitePolicy(), "clinic-a")
    asked = AskedTerms(chosen_by(ward=["a"], patient=[7]))
    with pytest.raises(PolicyError, match="takes rows by patient, which is no feature") as caught:
        check_policy(asked, SitePolicy(), "clinic-a")
    assert "set policy.rows: any in collaborator.yaml if you agree" in str(caught.value)
    check_policy(asked, SitePolicy(rows="any"), "clinic-a")
    assert "only rows whose ward is a and whose patient is 7" in dict(summary(asked.plan))["learns"]
