"""What a site is told about its records since the last run."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from fedfair.tables.profile import ColumnProfile, DataProfile, DataSummary, changes, summary_of

FILES = {"train": "sha256:00"}
BEFORE = summary_of(
    DataProfile({"train": 5059}, (ColumnProfile("age", 5059, 0),), {"no": 4000, "yes": 1059}), FILES, "2030-05-01"
)


def summary(records: int, missing: int = 0, other: int = 0, files: str = "sha256:01") -> DataSummary:
    labels = {"no": records * 4000 // 5059, "yes": records - records * 4000 // 5059}
    column = ColumnProfile("age", records, missing, other)
    return summary_of(DataProfile({"train": records}, (column,), labels), {"train": files}, "2030-06-01")


def test_records_columns_splits_and_labels_that_changed_are_named() -> None:
    assert changes(BEFORE, summary(4819, missing=578)) == (
        "records 5059 -> 4819", "column age: missing 0% -> 12%", "the file changed",
    )  # fmt: skip
    assert changes(summary(100, missing=2), summary(100, other=30)) == (
        "column age: missing 2% -> 0%, other 0% -> 30%",
    )
    now = summary_of(
        DataProfile({"train": 5000, "test": 59}, (ColumnProfile("bmi", 5059, 0),), {"no": 5059, "yes": 0}),
        FILES,
        "",
    )
    assert changes(BEFORE, now) == (
        "train records 5059 -> 5000", "test records 0 -> 59", "column bmi: was not used",
        "column age: is no longer used", "label no 79% -> 100%", "label yes 21% -> 0%",
    )  # fmt: skip
    assert changes(summary(5059, missing=1000), summary(5059, missing=1040)) == ("shares changed by less than 1%",)
    assert changes(summary(5059), summary(5059, missing=1)) == ("column age: missing 0% -> under 1%",)


@given(
    records=st.integers(1, 10_000), missing=st.integers(0, 10_000), other=st.integers(0, 10_000),
    change=st.sampled_from(("records", "missing", "other", "files")),
)  # fmt: skip
def test_equal_records_have_no_change_and_others_one(records: int, missing: int, other: int, change: str) -> None:
    missing, other = min(missing, records), min(other, records)
    same = summary(records, missing, other)
    assert changes(same, replace(same, written="2030-07-01")) == ()
    values = {"records": records, "missing": missing, "other": other}
    if change == "files":
        assert changes(same, summary(**values, files="sha256:02")) == ("the file changed",)
    else:
        assert changes(same, summary(**{**values, change: values[change] + 1})) != ()
