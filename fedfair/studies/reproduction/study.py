"""One experiment of the paper: a federation over one data set, and how large a repetition of it is.

A study says which plan everything starts from and which figures of the paper it speaks to; which runs that takes
is `runs.py`'s business. What the paper states and what had to be chosen here are kept apart, as sentences, because
a reader of the figures must be able to tell one from the other.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeAlias

from pydantic import BaseModel, ConfigDict

from fedfair.plan.dataset_presets import PRESETS

Values: TypeAlias = Mapping[str, object]
"""A plan, or a part of one, as it would be written in YAML."""

Followed: TypeAlias = Literal["tails", "means", "epochs"]
"""What the learning rates of a method are chosen for: steps on a tail or on a mean, or FedAvg's epochs."""

_PERSONS = "psam_p06.csv"
"""Name of a file of the American Community Survey, for the message where there is none at all."""


class Figure(enum.StrEnum):
    """A figure or table of the paper that a study repeats."""

    BASELINES = "baselines"
    """Figure 2: worst risk, utility and disparity against the group size, for all methods."""
    TRADEOFFS = "tradeoffs"
    """Figure 3: the fan over the tradeoff (epsilon)."""
    LOCAL_STEPS = "local-steps"
    """Figure 4: one, five and ten local steps (tau)."""
    KNOWN_GROUPS = "known-groups"
    """Tables A.1 and A.2: what knowing the wrong groups costs, and who is in the worst group."""
    LOCAL_THRESHOLDS = "local-thresholds"
    """Appendix A.1: a threshold of its own for every collaborator, which is a weaker adversary."""


class Repeats(enum.StrEnum):
    """The kind of a study's repetitions, for the error bars."""

    FOLDS = "folds"
    """Cross-validation: every repetition tests on another share of the records."""
    SEEDS = "seeds"
    """Another seed each time; the data bring their own test records."""


class Size(BaseModel):
    """The size of a repetition.

    Attributes:
        rounds: training rounds of every method that makes one step per round.
        epoch_rounds: training rounds of FedAvg, each of `local_epochs` passes.
        local_epochs: those passes.
        group_sizes: worst-group sizes (rho in the paper) that are trained for.
        small_tradeoffs: what stands for a tradeoff (epsilon) of about 0; the best on validation records is taken.
        tradeoffs: the fan of Figure 3.
        rates: candidates of learning rates by what a method follows; the best on validation records is taken.
        adversary_rates: candidates of the adversaries of AFL and FedMinMax.
        adversary_interval: rounds from one look of these at all losses to the next.
        answered: records in a step of DRO and BPF, whose losses their adversaries answer exactly; or full.
        repeats: folds or seeds.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    rounds: int
    epoch_rounds: int
    local_epochs: int
    group_sizes: tuple[float, ...]
    small_tradeoffs: tuple[float, ...]
    tradeoffs: tuple[float, ...]
    rates: Mapping[Followed, tuple[float, ...]]
    adversary_rates: tuple[float, ...] = (0.001,)
    adversary_interval: int = 1
    answered: int | Literal["full"] = "full"
    repeats: int = 3


class Study(BaseModel):
    """One federation over one data set.

    Attributes:
        name: such as acs-employment-race; also the name of its folder.
        data_set: the word of the command.
        title: what it is, for a heading.
        collaborators: their names.
        data: the source of its records, by its name; a file's name may be a pattern.
        split: how its records are divided: keys of a plan's task.
        partition: how they are dealt to the collaborators, where the data do not say it.
        model: what is trained.
        reference: what the excess is measured over: `objective.reference` of a plan; None for the usual one.
        batch_size: of one collaborator's step.
        repeats: how it is repeated.
        figures: what of the paper it repeats.
        methods: the names of the compared methods (`methods.py`), in the order of the legend.
        quick: a size for minutes.
        full: a size for hours.
        stated: sentences: what the paper states and this study does.
        chosen: sentences: what the paper leaves open, or this study does differently.
        group_column: the column of the groups that FedMinMax knows; None takes the labels.
        groups_are_collaborators: whether every group is one collaborator.
        paper_tables: whether Tables A.1 and A.2 of the paper are about this study.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    data_set: str
    title: str
    collaborators: tuple[str, ...]
    data: dict[str, dict[str, object]]
    split: dict[str, object]
    partition: dict[str, str] | None = None
    model: dict[str, object]
    reference: dict[str, object] | None = None
    batch_size: int
    repeats: Repeats
    figures: frozenset[Figure] = frozenset(Figure)
    methods: tuple[str, ...]
    quick: Size
    full: Size
    stated: tuple[str, ...]
    chosen: tuple[str, ...]
    group_column: str | None = None
    groups_are_collaborators: bool = False
    paper_tables: bool = False

    def source(self, folder: Path) -> dict[str, object]:
        """Return the section of its data source; a pattern in place of a file's name means the first such file."""
        source = dict(next(iter(self.data.values())))
        source = {**PRESETS.get(str(source.pop("preset", None)), {}), **source}
        pattern = str(source.get("train", ""))
        if "*" in pattern:
            source["train"] = min((path.name for path in folder.glob(pattern)), default=_PERSONS)
        return source

    def base(self, folder: Path) -> Values:
        """Return the plan that every run varies, without a size, for the folder of the data."""
        data = {next(iter(self.data)): self.source(folder)}
        task: Values = {"data": data, **self.split, "model": self.model}
        return {
            "federation": {"name": self.name, "collaborators": list(self.collaborators)},
            "task": task if self.partition is None else {**task, "partition": self.partition},
            "objective": {"measure": "loss"},
            "training": {"rounds": 1, "threshold_init": "quantile", "batch_size": self.batch_size},
            "evaluation": {"every": 10**9},
            # The paper's algorithms know no clip, and a simulation clips what the masked sums of its plan would.
            "secure_aggregation": {"mode": "off"},
        }


def merged(base: Values, *changes: Values) -> dict[str, object]:
    """Return a plan with parts of it replaced; mappings are merged, everything else is taken over."""
    whole = dict(base)
    for change in changes:
        for key, value in change.items():
            there = whole.get(key)
            if isinstance(there, Mapping) and isinstance(value, Mapping):
                whole[key] = merged(there, value)
            else:
                whole[key] = value
    return whole
