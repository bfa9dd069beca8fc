"""The experiments that can be repeated, by the name of their data set: `studies.yaml`, read.

Decides how a study's own values become the plan that all its runs vary. The settings and the sentences about them
stand in the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict

from fedfair.plan.dataset_presets import PRESETS
from fedfair.studies.reproduction.methods import METHODS
from fedfair.studies.reproduction.study import Figure, Repeats, Size, Study, Values

_PERSONS = "psam_p06.csv"
"""Name of a file of the American Community Survey, for the message where there is none at all."""


class _Rates(BaseModel):
    """Learning rates of methods that follow a tail, of those that follow a mean, and of FedAvg's epochs."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tails: tuple[float, ...]
    means: tuple[float, ...]
    epochs: tuple[float, ...]

    def of(self, method: str) -> tuple[float, ...]:
        """Return the rates of a method."""
        if METHODS[method].by_epochs:
            return self.epochs
        follows_tail = METHODS[method].knows_group_size
        return self.tails if follows_tail else self.means


class _SizeRow(BaseModel):
    """A size as the file has it; attributes as of `Size`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rounds: int
    epoch_rounds: int
    local_epochs: int
    group_sizes: tuple[float, ...]
    small_tradeoffs: tuple[float, ...]
    tradeoffs: tuple[float, ...]
    adversary_rates: tuple[float, ...]
    adversary_interval: int = 1
    answered: int | Literal["full"] = "full"
    rates: _Rates

    def size(self) -> Size:
        """Return the size with the rates of every method."""
        fields = self.model_dump(exclude={"rates"})
        return Size(**fields, learning_rates={name: self.rates.of(name) for name in METHODS})


class _StudyRow(BaseModel):
    """A study as the file has it; attributes as of `Study`, and what its plan is made of."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    data_set: str
    title: str
    collaborators: tuple[str, ...]
    data: dict[str, dict[str, object]]
    split: Literal["thirds", "own", "images"]
    partition: dict[str, str] | None = None
    model: dict[str, object]
    batch_size: int
    repeats: Repeats
    group_column: str | None = None
    groups_are_collaborators: bool = False
    paper_tables: bool = False
    quick: _SizeRow
    full: _SizeRow
    stated: tuple[str, ...]
    in_paper: bool
    chosen: tuple[str, ...] = ()

    def source(self, folder: Path) -> dict[str, object]:
        """Return the section of its data source; a pattern in place of a file's name means the first such file."""
        source = dict(next(iter(self.data.values())))
        source = {**PRESETS.get(str(source.pop("preset", None)), {}), **source}
        pattern = str(source.get("train", ""))
        if "*" in pattern:
            source["train"] = min((path.name for path in folder.glob(pattern)), default=_PERSONS)
        return source

    def plan(self, splits: Mapping[str, Values], folder: Path) -> Values:
        """Return the plan that every run varies.

        Args:
            splits: how records are divided, by name.
            folder: of the data.
        """
        data = {next(iter(self.data)): self.source(folder)}
        task: Values = {"data": data, **splits[self.split], "model": self.model}
        return {
            "federation": {"name": self.name, "collaborators": list(self.collaborators)},
            "task": task if self.partition is None else {**task, "partition": self.partition},
            "training": {"rounds": 1, "threshold_init": "quantile", "batch_size": self.batch_size},
            "evaluation": {"every": 10**9},
            # The paper's algorithms know no clip, and a simulation clips what the masked sums of its plan would.
            "secure_aggregation": {"mode": "off"},
        }


class _File(BaseModel):
    """The file: what the paper leaves open in all studies, how records are divided, and the studies."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    open: tuple[str, ...]
    splits: dict[str, dict[str, object]]
    studies: tuple[_StudyRow, ...]

    def read(self) -> Iterator[tuple[str, Study]]:
        """Yield every study with the name of its data set."""
        for row in self.studies:
            yield (
                row.data_set,
                Study(
                    name=row.name,
                    title=row.title,
                    base=partial(row.plan, self.splits),
                    repeats=row.repeats,
                    figures=frozenset(Figure),
                    methods=tuple(name for name in METHODS if name != "localbpf"),
                    quick=row.quick.size(),
                    full=row.full.size(),
                    stated=row.stated,
                    # How many rounds the paper made is open only where it uses the data at all.
                    chosen=(*row.chosen, *self.open[0 if row.in_paper else 1 :]),
                    group_column=row.group_column,
                    groups_are_collaborators=row.groups_are_collaborators,
                    paper_tables=row.paper_tables,
                ),
            )


def _file() -> _File:
    text = files("fedfair.studies.reproduction").joinpath("studies.yaml").read_text(encoding="utf-8")
    return _File.model_validate(yaml.safe_load(text))


_FILE = _file()
STUDIES: Mapping[str, tuple[Study, ...]] = {
    name: tuple(study for _, study in group) for name, group in groupby(_FILE.read(), key=lambda row: row[0])
}
"""By the word of the command."""


def table_of(data_set: str) -> Values:
    """Return how the first study of a data set reads its table: what a plan states under `task.data.csv`."""
    return next(row for row in _FILE.studies if row.data_set == data_set).source(Path())
