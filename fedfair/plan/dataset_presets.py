"""Published tables, described: what a plan writes under `task.data` for files as their authors publish them.

Decides which columns are features, what counts as missing and which class a label is; nothing here names a file.
Sources: UCI Machine Learning Repository, data sets 45 (Heart Disease) and 2 (Adult), and ACSIncome of Ding, Hardt,
Miller and Schmidt 2021 in the table of the FeDa4Fair benchmark, which recodes race and marital status.
"""

from __future__ import annotations

from collections.abc import Mapping

Table = Mapping[str, object]
"""The keys of `fedfair.plan.csv_table.CsvData`."""

HEART: Table = {
    "columns": [
        "age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak", "slope", "ca",
        "thal", "num",
    ],
    "label": "num",
    "label_values": [0, [1, 2, 3, 4]],
    "numeric": ["age", "trestbps", "chol", "thalach", "oldpeak", "ca"],
    "ranges": {
        "age": [0, 120], "trestbps": [40, 260], "chol": [50, 700], "thalach": [40, 240], "oldpeak": [-5, 10],
        "ca": [0, 3],
    },
    "categorical": {
        "sex": [0, 1], "cp": [1, 2, 3, 4], "fbs": [0, 1], "restecg": [0, 1, 2], "exang": [0, 1],
        "slope": [1, 2, 3], "thal": [3, 6, 7],
    },
    "missing": "mean",
    "missing_of": {"fbs": "own", "restecg": "own", "exang": "own", "slope": "own", "thal": "own"},
    "missing_values_of": {"trestbps": [0], "chol": [0]},
}  # fmt: skip
"""The processed files of four hospitals. A cholesterol or a blood pressure that was not measured is 0 in some."""

ADULT: Table = {
    "columns": [
        "age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship",
        "race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country", "income",
    ],
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
    },
    "missing_of": {"workclass": "own", "occupation": "own"},
}  # fmt: skip
"""`adult.data` and `adult.test`, whose first line is a comment and whose labels end in a full stop. Left out are
the weights of the census, education in words (education-num says the same) and the country of birth."""

ACS_INCOME: Table = {
    "label": "PINCP_gt_50k",
    "numeric": ["AGEP", "SCHL", "WKHP"],
    "categorical": {
        "COW": list(range(1, 9)),
        "MAR": [1, 2],
        "RELP": list(range(18)),
        "SEX": [1, 2],
        "RAC1P": [1, 2, 3, 4, 5],
    },
    "collaborator": "STATE",
    "rows": {"modified": [0], "partial": [0]},
}
"""One collaborator for each state. States of which the benchmark dropped records (`modified`) or has a part only
(`partial`) are left out; with `rows: {}` they are in. Codes of occupation and of birthplace, which are no numbers
and hundreds of categories, are no features."""
