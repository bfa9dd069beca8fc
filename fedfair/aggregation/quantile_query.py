"""An exact evaluation as a sequence of four sums over all splits at once: what is asked, answered and concluded.

Puts a `radix_select.SplitQuery` for each of train, validation and test side by side, and lays their answers out in
one header that is as long in every step, so that one shape serves them all: "counts" of the step, with zeros up to
the longest step's, and the "sums" of step 4.

A query is asked of one set of collaborators. A step over other records than the steps before it, or by other
collaborators, ends the query: the difference of two sums over almost the same people tells about the few that
differ. What a site refuses to answer a second time is the site's business.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.cvar_bounds import Interval
from fedfair.aggregation.header import Everything, Field, Header, Number
from fedfair.aggregation.loss_histogram import SPLITS
from fedfair.aggregation.radix_select import (
    PARTS,
    STEPS,
    ExactRisk,
    SplitQuery,
    StepAnswer,
    answer,
    answer_shapes,
)
from fedfair.errors import LocalProtocolError, RemoteProtocolError

_KEY = Everything(
    "the four steps tell a loss in single precision, 31 bits of it: policy.reveals must name loss-quantiles"
)


@dataclass(frozen=True, slots=True)
class QueryStep:
    """The request of one step, the same for all sites.

    Attributes:
        number: 1 to 4.
        prefixes: what is known of the keys, for each split and each group size, split by split; none in step 1.
    """

    number: int
    prefixes: tuple[int, ...]


def exact_layout(sizes: int) -> Header:
    """Return the layout of a header, for so many group sizes."""
    longest = max(len(SPLITS) * math.prod(answer_shapes(step, sizes)[0]) for step in range(1, STEPS + 1))
    return Header(
        Field("counts", Number.COUNT, (longest,), lone=_KEY),
        Field("sums", Number.REAL, (len(SPLITS), sizes, PARTS), lone=_KEY),
    )


def exact_header(losses: Mapping[str, NDArray[np.floating]], step: QueryStep, sizes: int) -> NDArray[np.float64]:
    """Return one site's answer.

    Args:
        losses: the losses of each split that has records.
        step: what is asked.
        sizes: how many group sizes the plan reports.

    Raises:
        RemoteProtocolError: the step does not ask about so many sizes.
        TrainingError: a loss has no key; see `radix.loss_keys`.
    """
    expected = 0 if step.number == 1 else len(SPLITS) * sizes
    if len(step.prefixes) != expected:
        raise RemoteProtocolError(
            f"step {step.number} of a query has {len(step.prefixes)} prefixes, the plan needs {expected}",
            "compare the plan digests and the versions of fedfair on both sides",
        )
    none = np.zeros(0)
    rows = [step.prefixes[at * sizes : (at + 1) * sizes] for at in range(len(SPLITS))]
    answers = [answer(losses.get(name, none), step.number, row) for name, row in zip(SPLITS, rows, strict=True)]
    layout = exact_layout(sizes)
    header = layout.zeros()
    found = layout.read(header)
    counts = np.concatenate([one.counts.ravel() for one in answers])
    found["counts"][: len(counts)] = counts
    if step.number == STEPS:
        found["sums"] = [one.sums for one in answers]
    return header


def _answers(header: NDArray[np.float64], step: int, sizes: int) -> list[StepAnswer]:
    """Return the answers of the splits that a total holds."""
    found = exact_layout(sizes).read(header)
    counts_shape, sums_shape = answer_shapes(step, sizes)
    counts, rest = np.split(found["counts"], [len(SPLITS) * math.prod(counts_shape)])
    if rest.any() or (step < STEPS and found["sums"].any()):
        raise RemoteProtocolError(f"step {step} of a query was answered with numbers that were not asked for")
    all_sums = found["sums"].reshape(len(SPLITS), *sums_shape) if step == STEPS else np.zeros((len(SPLITS), 0))
    return [StepAnswer(*pair) for pair in zip(counts.reshape(len(SPLITS), *counts_shape), all_sums, strict=True)]


@dataclass(frozen=True, slots=True)
class ExactQuery:
    """The state of a query.

    Attributes:
        splits: the queries about train, validation and test; all at the same step.
        members: who answered step 1; empty before it.
    """

    splits: tuple[SplitQuery, ...]
    members: tuple[str, ...] = ()

    @classmethod
    def of(cls, group_sizes: Sequence[float]) -> ExactQuery:
        """Return a query that was not asked yet.

        Args:
            group_sizes: shares (rho) in (0, 1], at most `plan.sections.MAX_EXACT_SIZES`.
        """
        return cls(tuple(SplitQuery(tuple(group_sizes)) for _ in SPLITS))

    @property
    def step(self) -> QueryStep | None:
        """Return what is to be asked; None when everything is known."""
        number = self.splits[0].step
        if number > STEPS:
            return None
        return QueryStep(number, tuple(prefix for split in self.splits for prefix in split.prefixes))

    @property
    def records(self) -> dict[str, int]:
        """Return how many records each split has, after step 1."""
        return {name: split.records for name, split in zip(SPLITS, self.splits, strict=True)}

    @property
    def risks(self) -> dict[str, dict[float, ExactRisk]]:
        """Return what is proved, by split and group size, in the end."""
        found = zip(SPLITS, self.splits, strict=True)
        return {name: split.risks for name, split in found if split.records}

    @property
    def means(self) -> dict[str, Interval]:
        """Return an interval that holds the mean loss of each split that has records, in the end."""
        found = zip(SPLITS, self.splits, strict=True)
        return {name: split.mean for name, split in found if split.mean is not None}

    def apply_aggregate(self, header: NDArray[np.float64], members: Collection[str]) -> ExactQuery:
        """Return the query after the total of all answers.

        Args:
            header: float64 array, as `exact_layout` says.
            members: whose answers are in it.

        Raises:
            RemoteProtocolError: the total is not over the records, or by the members, of the steps before.
            LocalProtocolError: nothing is left to be asked.
        """
        step = self.step
        if step is None:
            raise LocalProtocolError("a finished query accepts no further total")
        present = tuple(sorted(members))
        if step.number > 1 and present != self.members:
            raise RemoteProtocolError(
                f"step {step.number} of a query was answered by {', '.join(present)}, step 1 by "
                f"{', '.join(self.members)}",
                "a query needs the same collaborators from its first step to its last",
            )
        answers = _answers(header, step.number, len(self.splits[0].group_sizes))
        splits = tuple(split.apply_aggregate(total) for split, total in zip(self.splits, answers, strict=True))
        return replace(self, splits=splits, members=present)
