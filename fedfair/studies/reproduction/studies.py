"""The experiments that can be repeated, by the name of their data set: `studies.yaml`, read.

The settings and the sentences about them stand in the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

import yaml

from fedfair.studies.reproduction.methods import METHODS
from fedfair.studies.reproduction.study import Study, Values


def _studies() -> dict[str, list[Study]]:
    text = files("fedfair.studies.reproduction").joinpath("studies.yaml").read_text(encoding="utf-8")
    stated = yaml.safe_load(text)
    methods = tuple(name for name in METHODS if name != "localbpf")
    found: dict[str, list[Study]] = {}
    for row in stated["studies"]:
        split = stated["splits"][row.pop("split")]
        # How many rounds the paper made is open only where it uses the data at all.
        chosen = (*row.pop("chosen", ()), *stated["open"][0 if row.pop("in_paper") else 1 :])
        study = Study(**row, split=split, chosen=chosen, methods=methods)
        found.setdefault(study.data_set, []).append(study)
    return found


STUDIES: Mapping[str, Sequence[Study]] = _studies()
"""By the word of the command."""


def table_of(data_set: str) -> Values:
    """Return how the first study of a data set reads its table: what a plan states under `task.data.csv`."""
    return STUDIES[data_set][0].source(Path())
