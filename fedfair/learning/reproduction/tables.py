"""The published tables that no built-in source reads, as a plan describes them.

Columns, categories and labels are those of the data sets' own descriptions (UCI Machine Learning Repository, Adult
and Heart Disease).
"""

from __future__ import annotations

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

HEART: Values = {
    "train_of": {
        hospital: f"processed.{hospital}.data" for hospital in ("cleveland", "hungarian", "switzerland", "va")
    },
    "columns": list(HEART_COLUMNS),
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
    "missing_values_of": {"chol": ["0"]},
    "keep": ["sex"],
}
"""The hospitals' own files; a missing category falls into the column for any other value, and a chol of 0 is a
measurement that was not made."""

INCOME_STATES = (
    "AK", "AL", "AR", "AZ", "CO", "CT", "DE", "GA", "HI", "IA", "ID", "IL", "IN", "KS", "KY", "LA", "MA", "MD",
    "ME", "MI", "MN", "MO", "MS", "MT", "NC", "ND", "NE", "NH", "NJ", "NM", "NV", "NY", "OH", "OK", "OR", "PA",
    "RI", "SC", "SD", "TN", "TX", "UT", "VA", "VT", "WA", "WI", "WV", "WY",
)  # fmt: skip
"""All states that are there whole; California is not there, Florida is a third, Puerto Rico is no state."""

ACS_INCOME: Values = {
    "train": "acs_income_2018_feda4fair.csv.gz",
    "rows": {"STATE": list(INCOME_STATES)},
    "label": "PINCP_gt_50k",
    "numeric": ["AGEP", "SCHL", "WKHP"],
    "categorical": {
        "COW": [1, 2, 3, 4, 5, 6, 7, 8],
        "MAR": [1, 2],
        "RELP": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16],
        "SEX": [1, 2],
        "RAC1P": [1, 2, 3, 4, 5],
    },
    "collaborator": "STATE",
    "keep": ["RAC1P"],
}
"""ACS Income as FeDa4Fair publishes it; occupation and place of birth are left out."""
