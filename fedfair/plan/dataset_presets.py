"""Published tables, described: what a plan writes under `task.data` for files as their authors publish them.

`dataset_presets.yaml` decides which columns are features, what counts as missing and which class a label is.
Sources: UCI Machine Learning Repository, data sets 45 (Heart Disease) and 2 (Adult), and ACSIncome of Ding, Hardt,
Miller and Schmidt 2021 in the table of the FeDa4Fair benchmark, which recodes race and marital status.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import TypeAlias

import yaml

Table: TypeAlias = Mapping[str, object]
"""The keys of `fedfair.plan.csv_table.CsvData`."""

PRESETS: Mapping[str, Table] = yaml.safe_load(
    files("fedfair.plan").joinpath("dataset_presets.yaml").read_text(encoding="utf-8")
)
"""By name."""

HEART, ADULT, ACS_INCOME = (PRESETS[name] for name in ("heart", "adult", "acs-income"))
