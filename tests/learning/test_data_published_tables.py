"""Tables as their authors published them, read by options of the plan alone: no file is edited."""

from pathlib import Path

import pytest

from fedfair.learning.data.csv_file import load_csv
from fedfair.plan.csv_data import CsvData

HEART = CsvData.model_validate(
    {
        "columns": [
            "age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak", "slope", "ca",
            "thal", "num",
        ],
        "label": "num",
        "label_values": [0, [1, 2, 3, 4]],
        "numeric": ["age", "trestbps", "thalach", "oldpeak"],
        "categorical": {"sex": [0, 1], "cp": [1, 2, 3, 4]},
        "missing": "mean",
    }
)  # fmt: skip
ADULT = CsvData.model_validate(
    {
        "columns": [
            "age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation",
            "relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country",
            "income",
        ],
        "comment": "|",
        "label": "income",
        "label_values": [["<=50K", "<=50K."], [">50K", ">50K."]],
        "numeric": ["age", "education-num", "capital-gain", "capital-loss", "hours-per-week"],
        "categorical": {"sex": ["Female", "Male"]},
    }
)  # fmt: skip


@pytest.mark.parametrize(
    ("hospital", "rows", "ill"),
    [("cleveland", 303, 139), ("hungarian", 294, 106), ("switzerland", 123, 115), ("va", 200, 149)],
)
def test_the_four_hospitals_have_their_published_rows_and_rates(
    data_root: Path, hospital: str, rows: int, ill: int
) -> None:
    dataset = load_csv(data_root / "heart" / f"processed.{hospital}.data", HEART, None, ())
    assert (len(dataset), int(dataset.labels.sum())) == (rows, ill)


@pytest.mark.parametrize(("name", "rows", "rich"), [("data", 32_561, 0.2408), ("test", 16_281, 0.2362)])
def test_adult_has_its_published_rows_and_rates(data_root: Path, name: str, rows: int, rich: float) -> None:
    dataset = load_csv(data_root / "adult" / f"adult.{name}.gz", ADULT, None, ())
    assert len(dataset) == rows
    # The rates are published to two digits of a per cent.
    assert dataset.labels.mean() == pytest.approx(rich, abs=5e-5)
