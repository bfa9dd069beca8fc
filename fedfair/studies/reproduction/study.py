"""One experiment of the paper: a federation over one data set, and how large a repetition of it is.

A study says which plan everything starts from and which figures of the paper it speaks to; which runs that takes
is `runs.py`'s business. What the paper states and what had to be chosen here are kept apart, as sentences, because
a reader of the figures must be able to tell one from the other.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

Values: TypeAlias = Mapping[str, object]
"""A plan, or a part of one, as it would be written in YAML."""

Rates: TypeAlias = Mapping[str, tuple[float, ...]]
"""Learning rates that are tried, by the name of the method."""


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


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a repetition.

    Attributes:
        rounds: training rounds of every method that makes one step per round.
        epoch_rounds: training rounds of FedAvg, each of `local_epochs` passes.
        local_epochs: those passes.
        group_sizes: worst-group sizes (rho in the paper) that are trained for.
        small_tradeoffs: what stands for a tradeoff (epsilon) of about 0; the best on validation records is taken.
        tradeoffs: the fan of Figure 3.
        learning_rates: candidates of each method, by its name; the best on validation records is taken.
        adversary_rates: candidates of the adversaries of AFL and FedMinMax.
        adversary_interval: rounds from one look of these at all losses to the next.
        answered: records in a step of DRO and BPF, whose losses their adversaries answer exactly; or full.
        repeats: folds or seeds.
    """

    rounds: int
    epoch_rounds: int
    local_epochs: int
    group_sizes: tuple[float, ...]
    small_tradeoffs: tuple[float, ...]
    tradeoffs: tuple[float, ...]
    learning_rates: Rates
    adversary_rates: tuple[float, ...] = (0.001,)
    adversary_interval: int = 1
    answered: int | Literal["full"] = "full"
    repeats: int = 3


@dataclass(frozen=True, slots=True)
class Study:
    """One federation over one data set.

    Attributes:
        name: such as acs-employment-race; also the name of its folder.
        title: what it is, for a heading.
        base: from the folder of the data to the plan that every run varies, without a size.
        repeats: how it is repeated.
        figures: what of the paper it repeats.
        methods: the names of the compared methods (`methods.py`), in the order of the legend.
        group_column: the column of the groups that FedMinMax knows; None takes the labels.
        groups_are_collaborators: whether every group is one collaborator.
        paper_tables: whether Tables A.1 and A.2 of the paper are about this study.
        quick: a size for minutes.
        full: a size for hours.
        stated: sentences: what the paper states and this study does.
        chosen: sentences: what the paper leaves open, or this study does differently.
    """

    name: str
    title: str
    base: Callable[[Path], Values]
    repeats: Repeats
    figures: frozenset[Figure]
    methods: tuple[str, ...]
    quick: Size
    full: Size
    stated: tuple[str, ...]
    chosen: tuple[str, ...]
    group_column: str | None = None
    groups_are_collaborators: bool = False
    paper_tables: bool = False


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
