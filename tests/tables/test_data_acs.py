from pathlib import Path

import pytest

from fedfair.errors import DataError
from fedfair.plan.sources import AcsEmploymentData
from fedfair.tables.sources.acs_employment import FEATURES, load_acs_employment

HEADER = ["SERIALNO", "ST", "PWGTP", *FEATURES, "ESR"]


def person(state: int | str = 10, age: int | str = 40, race: int = 1, esr: int | str = 1, weight: int = 5) -> str:
    values = {
        "SERIALNO": "2018HU1", "ST": state, "PWGTP": weight, "AGEP": age, "RAC1P": race, "ESR": esr, "ESP": "",
    }  # fmt: skip
    return ",".join(str(values.get(name, 1)) for name in HEADER)


def write(folder: Path, *people: str, name: str = "psam_p10.csv", header: list[str] = HEADER) -> Path:
    (folder / name).write_text("\n".join([",".join(header), *people]) + "\n")
    return folder / name


def spec(**fields: object) -> AcsEmploymentData:
    return AcsEmploymentData.model_validate(fields)


def test_features_are_the_census_codes_and_only_a_civilian_at_work_is_employed(tmp_path: Path) -> None:
    dataset = load_acs_employment(write(tmp_path, person(age=33, race=9)), spec(), ())
    record = dict(zip(FEATURES, dataset.features[0].tolist(), strict=True))
    assert (record["AGEP"], record["RAC1P"], record["ESP"], record["SCHL"]) == (33, 9, 0, 1)
    assert len(FEATURES) == 16
    codes = ["1", "2", "3", "4", "5", "6", ""]
    dataset = load_acs_employment(write(tmp_path, *(person(esr=code) for code in codes)), spec(), ())
    assert dataset.labels.tolist() == [1, 0, 0, 0, 0, 0, 0]


def test_filters_states_and_weights_of_persons(tmp_path: Path) -> None:
    people = [person(age=age) for age in (0, 16, 17, 89, 90)] + [person(weight=0)]
    path = write(tmp_path, *people)
    assert len(load_acs_employment(path, spec(), ())) == 6
    assert load_acs_employment(path, spec(working_age_only=True), ()).features[:, 0].tolist() == [17, 89]
    path = write(tmp_path, person(state="06", age=1), person(state=6, age=2), person(state="60", age=3))
    dataset = load_acs_employment(path, spec(states=[6]), ())
    assert dataset.features[:, 0].tolist() == [1, 2]
    assert dataset.columns["ST"].tolist() == ["06", "6"]


def test_groups_and_states_of_a_folder_are_kept_and_faults_have_their_place(tmp_path: Path) -> None:
    path = write(tmp_path, person(race=1), person(race=2), person(race=6, state=15))
    columns = load_acs_employment(path, spec(keep=["SERIALNO"]), ("race", "MAR")).columns
    assert columns["race"].tolist() == ["white", "black", "other"]
    assert columns["ST"].tolist() == ["10", "10", "15"]
    assert columns["SERIALNO"].tolist() == ["2018HU1"] * 3
    assert set(columns) == {"race", "ST", "SEX", "RAC1P", "AGEP", "SERIALNO", "MAR"}
    write(tmp_path, person(state=15, age=15), name="psam_p15.csv")
    write(tmp_path, person(state=10, age=10))
    assert load_acs_employment(tmp_path, spec(), ()).features[:, 0].tolist() == [10, 15]
    assert load_acs_employment(tmp_path, spec(states=[15]), ()).features[:, 0].tolist() == [15]
    with pytest.raises(DataError, match="no record left after the plan's filters"):
        load_acs_employment(tmp_path, spec(states=[6]), ())
    with pytest.raises(DataError, match=r"column 'AGEP': not a finite number in 1 row \(line 3: 'young'\)"):
        load_acs_employment(write(tmp_path, person(), person(age="young")), spec(), ())
    with pytest.raises(DataError, match=r"psam_p10\.csv has no column 'ESR'"):
        load_acs_employment(write(tmp_path, "1", header=["AGEP"]), spec(), ())
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"holds no \.csv"):
        load_acs_employment(tmp_path / "empty", spec(), ())


@pytest.mark.parametrize(
    ("filtered", "rows", "rate"),
    [(True, 139_568, 56.24), pytest.param(False, 173_916, 45.40, marks=pytest.mark.slow)],
)
def test_the_real_records_have_the_counts_of_an_independent_reading(
    data_root: Path, filtered: bool, rows: int, rate: float
) -> None:
    # The README beside the data set: rows, and employed in per cent to two decimals.
    dataset = load_acs_employment(data_root / "acs_employment", spec(working_age_only=filtered), ())
    assert len(dataset) == rows
    assert abs(100 * dataset.labels.mean() - rate) <= 0.005
    assert len(set(dataset.columns["ST"].tolist())) == 14
    if filtered:
        assert (dataset.columns["race"] == "white").sum() == 116_854
        assert (dataset.columns["race"] == "black").sum() == 3_506
