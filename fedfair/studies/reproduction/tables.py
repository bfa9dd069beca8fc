"""The published tables as these experiments take them: which files, whose rows, which columns name groups."""

from __future__ import annotations

from fedfair.plan import dataset_presets
from fedfair.studies.reproduction.study import Values

HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")

HEART: Values = {
    **dataset_presets.HEART,
    "train_of": {hospital: f"processed.{hospital}.data" for hospital in HOSPITALS},
    "keep": ["sex"],
}
"""Every hospital's own file."""

ADULT: Values = {
    **dataset_presets.ADULT,
    "train": "adult.data.gz",
    "test": "adult.test.gz",
    "collaborator": "race",
    "keep": ["sex"],
}

INCOME_STATES = (
    "AK", "AL", "AR", "AZ", "CO", "CT", "DE", "GA", "HI", "IA", "ID", "IL", "IN", "KS", "KY", "LA", "MA", "MD",
    "ME", "MI", "MN", "MO", "MS", "MT", "NC", "ND", "NE", "NH", "NJ", "NM", "NV", "NY", "OH", "OK", "OR", "PA",
    "RI", "SC", "SD", "TN", "TX", "UT", "VA", "VT", "WA", "WI", "WV", "WY",
)  # fmt: skip
"""All states that are there whole; California is not there, Florida is a third, Puerto Rico is no state."""

ACS_INCOME: Values = {
    **dataset_presets.ACS_INCOME,
    "train": "acs_income_2018_feda4fair.csv.gz",
    "rows": {"STATE": list(INCOME_STATES)},
    "keep": ["RAC1P"],
}
