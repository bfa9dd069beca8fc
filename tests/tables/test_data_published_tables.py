"""Tables as their authors published them, read by options of the plan alone: no file is edited."""

import csv
import gzip
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from fedfair.plan.csv_table import CsvData
from fedfair.plan.dataset_presets import ACS_INCOME, ADULT, HEART
from fedfair.tables.dataset import Splits
from fedfair.tables.source import load_federation
from fedfair.tables.sources.table import read_csv
from tests import plans

HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")


def table(published: Mapping[str, object]) -> CsvData:
    return CsvData.model_validate(published)


def federation(published: Mapping[str, object], names: list[str], root: Path, **csv: object) -> dict[str, Splits]:
    plan = plans.parsed(names, task={"data": {"csv": {**published, **csv}}, "standardize": "secure"})
    return {str(name): own for name, own in load_federation(plan, root).items()}


@pytest.mark.parametrize(
    ("hospital", "rows", "ill"),
    [("cleveland", 303, 139), ("hungarian", 294, 106), ("switzerland", 123, 115), ("va", 200, 149)],
)
def test_the_hospitals_have_their_published_rates(data_root: Path, hospital: str, rows: int, ill: int) -> None:
    dataset = read_csv(data_root / "heart" / f"processed.{hospital}.data", table(HEART), None, ()).dataset
    assert (len(dataset), int(dataset.labels.sum())) == (rows, ill)


def test_what_a_hospital_did_not_measure_is_missing_and_nothing_else_is(data_root: Path) -> None:
    files = {name: f"processed.{name}.data" for name in HOSPITALS}
    sites = federation(HEART, list(HOSPITALS), data_root / "heart", train_of=files)
    missing = {
        name: {
            column: int(np.isnan(own.train.features[:, place]).sum())
            for place, column in enumerate(own.train.schema.names[:6])
        }
        for name, own in sites.items()
    }
    # Counted with awk in the files: '?' and, of chol and trestbps, zeros.
    assert {name: counts["ca"] for name, counts in missing.items()} == {
        "cleveland": 4, "hungarian": 291, "switzerland": 118, "va": 198,
    }  # fmt: skip
    assert missing["switzerland"]["chol"] == 123
    assert missing["va"]["trestbps"] == 56 + 1
    assert missing["cleveland"]["chol"] == missing["cleveland"]["age"] == 0


@pytest.mark.parametrize(("name", "rows", "rich"), [("data", 32_561, 0.2408), ("test", 16_281, 0.2362)])
def test_adult_has_its_published_rows_and_rates(data_root: Path, name: str, rows: int, rich: float) -> None:
    dataset = read_csv(data_root / "adult" / f"adult.{name}.gz", table(ADULT), None, ()).dataset
    assert len(dataset) == rows
    # The rates are published to two digits of a per cent.
    assert dataset.labels.mean() == pytest.approx(rich, abs=5e-5)
    # Every category is known: what falls into "other" would be a value that the description forgets.
    others = [index for index, column in enumerate(dataset.schema.names) if column.endswith("=other")]
    assert dataset.features[:, others].sum() == 0


def test_every_state_of_acs_income_that_is_whole_is_a_collaborator(tmp_path: Path) -> None:
    header = "STATE,AGEP,COW,SCHL,MAR,OCCP,POBP,RELP,WKHP,SEX,RAC1P,PINCP_gt_50k,modified,partial\n"
    row = "{state},46,1,19,1,5240,39,0,20,2,1,{label},{modified},{partial}\n"
    rows = [("AL", 1, 0, 0), ("AK", 1, 1, 0), ("NY", 0, 0, 0), ("FL", 1, 0, 1), ("NY", 1, 0, 0)]
    text = header + "".join(row.format(state=s, label=y, modified=m, partial=p) for s, y, m, p in rows)
    (tmp_path / "income.csv").write_text(text)
    sites = federation(ACS_INCOME, ["al", "ny"], tmp_path, train="income.csv")
    assert {name: own.train.labels.tolist() for name, own in sites.items()} == {"al": [1], "ny": [0, 1]}


@pytest.mark.slow
def test_acs_income_has_its_published_rows_and_rates_state_by_state(data_root: Path) -> None:
    folder = data_root / "acs_income"
    with (folder / "states.csv").open() as file:
        published = {line["STATE"].lower(): line for line in csv.DictReader(file)}
    whole = [name for name, line in published.items() if (line["modified"], line["partial"]) == ("0", "0")]
    file = "acs_income_2018_feda4fair.csv.gz"
    with gzip.open(folder / file, "rt") as text:
        assert text.readline().startswith("STATE,AGEP")
    sites = federation(ACS_INCOME, whole, folder, train=file)
    assert len(sites) == 37
    for name, own in sites.items():
        assert len(own.train) == int(published[name]["rows"])
        # Rates are published to five digits.
        assert own.train.labels.mean() == pytest.approx(float(published[name]["rate"]), abs=5e-6)
        others = [index for index, column in enumerate(own.train.schema.names) if column.endswith("=other")]
        assert own.train.features[:, others].sum() == 0
