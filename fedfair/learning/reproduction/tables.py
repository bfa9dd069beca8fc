"""The published tables that the built-in sources do not read: how a plan describes them, and one that is put together.

Columns, categories and labels are those of the data sets' own descriptions (UCI Machine Learning Repository, Adult
and Heart Disease).
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from fedfair.errors import DataError
from fedfair.learning.reproduction.study import Values

ADULT_COLUMNS = (
    "age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship",
    "race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country", "income",
)  # fmt: skip

ADULT: Values = {
    "train": "adult.data.gz",
    "test": "adult.test.gz",
    "columns": list(ADULT_COLUMNS),
    "comment": "|",
    "label": "income",
    "label_values": [["<=50K", "<=50K."], [">50K", ">50K."]],
    "numeric": ["age", "education-num", "capital-gain", "capital-loss", "hours-per-week"],
    "categorical": {
        "workclass": [
            "Private", "Self-emp-not-inc", "Self-emp-inc", "Federal-gov", "Local-gov", "State-gov", "Without-pay",
            "Never-worked",
        ],
        "marital-status": [
            "Married-civ-spouse", "Divorced", "Never-married", "Separated", "Widowed", "Married-spouse-absent",
            "Married-AF-spouse",
        ],
        "occupation": [
            "Tech-support", "Craft-repair", "Other-service", "Sales", "Exec-managerial", "Prof-specialty",
            "Handlers-cleaners", "Machine-op-inspct", "Adm-clerical", "Farming-fishing", "Transport-moving",
            "Priv-house-serv", "Protective-serv", "Armed-Forces",
        ],
        "relationship": ["Wife", "Own-child", "Husband", "Not-in-family", "Other-relative", "Unmarried"],
        "race": ["White", "Asian-Pac-Islander", "Amer-Indian-Eskimo", "Other", "Black"],
        "sex": ["Female", "Male"],
        "native-country": ["United-States", "Mexico"],
    },
    "collaborator": "race",
    "keep": ["sex"],
}  # fmt: skip
"""UCI Adult as published; every other country falls into one more column."""

HEART_COLUMNS = (
    "age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak", "slope", "ca", "thal",
    "num",
)  # fmt: skip
HEART_HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
HEART_FILE = "heart.csv"

HEART: Values = {
    "train": HEART_FILE,
    "label": "num",
    "label_above": 0,
    "numeric": ["age", "trestbps", "chol", "thalach", "oldpeak"],
    "categorical": {
        "sex": [0, 1],
        "cp": [1, 2, 3, 4],
        "fbs": [0, 1],
        "restecg": [0, 1, 2],
        "exang": [0, 1],
        "slope": [1, 2, 3],
        "thal": [3, 6, 7],
    },
    "missing": "mean",
    "collaborator": "hospital",
    "keep": ["sex"],
}
"""The four hospitals in one table; a missing category falls into the column for any other value."""


def heart_table(data: Path, workspace: Path) -> Path:
    """Write the four hospitals' files as one table with a header line and a column `hospital`.

    Args:
        data: the folder of processed.cleveland.data and the others.
        workspace: where heart.csv goes.

    Returns:
        The workspace.

    Raises:
        DataError: a file is missing or has another number of columns.
    """
    parts = []
    for hospital in HEART_HOSPITALS:
        path = data / f"processed.{hospital}.data"
        if not path.is_file():
            raise DataError(f"{path} is missing", "name the folder of UCI's processed.*.data files by --data")
        part = pd.read_csv(path, header=None, na_values="?")
        if part.shape[1] != len(HEART_COLUMNS):
            raise DataError(f"{path} has {part.shape[1]} columns, expected {len(HEART_COLUMNS)}")
        part.columns = pd.Index(HEART_COLUMNS)
        parts.append(part.assign(hospital=hospital))
    whole = pd.concat(parts, ignore_index=True)
    # UCI writes 1 at one hospital and 1.0 at another; a chol of 0 is a measurement that was not made.
    whole["chol"] = whole["chol"].where(whole["chol"] > 0)
    whole.to_csv(workspace / HEART_FILE, index=False, float_format="%g", na_rep="?")
    return workspace
