"""The sum of a release audit: how many training and held-out records have which score of a membership attack.

    loss          the loss of the record under the output model, in bins of a third of a power of two
    calibrated    where references judge: the loss less that of one reference which has not seen the record (Watson
                  et al. 2022, "On the Importance of Difficulty Calibration in Membership Inference Attacks"; the
                  offline attack of Carlini et al. 2022 with one model), in equal bins to both sides of 0

Low scores speak for a member: near 0 a third of a power of two tells losses apart that a histogram of equal bins
does not. Both scores are counted over all records, over each class where there are at most ten, and over the worst
slices that a search has found. A record counts once; what a site leaves out says `training.audited_records`.

The request names the cells of the slices, as the search has cut them. It is the same for all sites, and follows
from the state of the run. Numpy only.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.header import Bits, Field, Header, Number, one_of
from fedfair.aggregation.quantile_query import QueryStep
from fedfair.aggregation.slice_columns import Cut
from fedfair.aggregation.slice_sums import SliceLayout, slice_layout
from fedfair.errors import RemoteProtocolError
from fedfair.plan.derived import (
    MAX_SCORED_CLASSES,
    audited_slices,
    finds_slices,
    measures_excess,
    planned_loss_range,
    predicts_classes,
)
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan

BINS = 64
"""So many values a score has: six bits of a lone record."""

PER_OCTAVE = 3
"""So many bins a loss has between two powers of two."""

ATTACKS = ("loss", "calibrated")
"""The scores, in the order of their fields."""

SIDES = ("train", "held_out")
"""The kinds of records, in the order of the first axis."""

Cell = tuple[int, int]
"""A column of slices by its place, and a cell of it."""


def loss_bins(losses: NDArray[np.float64], loss_range: float) -> NDArray[np.int64]:
    """Return the bin of each loss, from 0 for the lowest: int64 array (n,).

    Args:
        losses: float64 array (n,), finite and not negative.
        loss_range: where the last bin begins, in units of the loss.
    """
    edges = loss_range * 2.0 ** (np.arange(2 - BINS, 1) / PER_OCTAVE)
    return np.searchsorted(edges, losses, side="right").astype(np.int64)


def calibrated_bins(
    losses: NDArray[np.float64], of_references: NDArray[np.float64], loss_range: float
) -> NDArray[np.int64]:
    """Return the bin of each loss less that of a reference: int64 array (n,); 0 is where a loss is far below.

    Args:
        losses: float64 array (n,), finite and not negative.
        of_references: likewise, what a reference that has not seen the record loses.
        loss_range: how far the bins reach to both sides.
    """
    edges = loss_range * np.linspace(-1.0, 1.0, BINS - 1)
    return np.searchsorted(edges, losses - of_references, side="right").astype(np.int64)


@dataclass(frozen=True)
class AuditLayout:
    """Where the counts of an audit are.

    Attributes:
        attacks: which of `ATTACKS` are counted.
        classes: how many classes are counted by themselves.
        slices: how many slices, at most.
        loss_range: of the plan's losses.
        sliced: the columns of the slices; None where the plan finds none.
    """

    attacks: tuple[str, ...]
    classes: int
    slices: int
    loss_range: float
    sliced: SliceLayout | None = None

    @cached_property
    def header(self) -> Header:
        """Return the fields of a contribution: of each attack the counts of all, by class and by slice."""
        shape, one = (len(SIDES), BINS), len(SIDES) * BINS
        fields = [Field("linked", Number.COUNT, lone=one_of(2))]
        for attack in self.attacks:
            fields += [
                Field(attack, Number.COUNT, shape, lone=one_of(one)),
                Field(
                    f"{attack}_by_class",
                    Number.COUNT,
                    (self.classes, *shape),
                    lone=one_of(max(self.classes, 1) * one),
                ),
                Field(f"{attack}_by_slice", Number.COUNT, (self.slices, *shape), lone=_in_slices(self.slices)),
            ]
        return Header(*fields)


def _in_slices(slices: int) -> Bits:
    """Return what all slices tell of a record: in which of them it is, its side and its bin."""
    return Bits(slices + one_of(len(SIDES) * BINS).most)


def audit_layout(plan: Plan, schema: FeatureSchema) -> AuditLayout:
    """Return the layout of a plan's audit."""
    classes = schema.classes if predicts_classes(plan) and 2 <= schema.classes <= MAX_SCORED_CLASSES else 0
    return AuditLayout(
        ATTACKS if measures_excess(plan) else ATTACKS[:1],
        classes,
        audited_slices(plan),
        planned_loss_range(plan, schema.classes),
        slice_layout(plan, schema) if finds_slices(plan) else None,
    )


@dataclass(frozen=True, slots=True)
class AuditQuestion:
    """The request of an audit, the same for all sites.

    Attributes:
        slices: the cells of each slice that is audited by itself, one or two.
        cuts: the cells of each column, where there are slices.
    """

    slices: tuple[tuple[Cell, ...], ...] = ()
    cuts: tuple[Cut, ...] = ()

    @property
    def step(self) -> QueryStep:
        """Return the request as the only step of a query."""
        if not self.slices:
            return QueryStep(1, ())
        cells = [(len(one), *itertools.chain.from_iterable(one)) for one in self.slices]
        cuts = [(len(cut), *cut) for cut in self.cuts]
        return QueryStep(1, (len(cells), *itertools.chain(*cells, *cuts)))

    @classmethod
    def of(cls, step: QueryStep, layout: AuditLayout) -> AuditQuestion:
        """Return what a query asks.

        Raises:
            RemoteProtocolError: it is no question of such an audit.
        """
        left = iter(step.prefixes)
        columns = () if layout.sliced is None else layout.sliced.columns
        slices = tuple(
            tuple((next(left, 0), next(left, 0)) for _ in range(min(next(left, 0), 2)))
            for _ in range(min(next(left, 0), layout.slices))
        )
        cuts = tuple(tuple(itertools.islice(left, next(left, 0))) for _ in columns) if slices else ()
        question = cls(slices, cuts)
        if question.step != step or not question.may_be(layout):
            raise RemoteProtocolError(
                "a release audit asks for slices that this plan does not have",
                "compare the plan digests and the versions of fedfair on both sides",
            )
        return question

    def may_be(self, layout: AuditLayout) -> bool:
        """Return whether it is a question of such an audit."""
        columns = () if layout.sliced is None else layout.sliced.columns
        if not self.slices:
            return not self.cuts
        return (
            len(self.slices) <= layout.slices
            and len(self.cuts) == len(columns)
            and all(column.may_be(cut) for column, cut in zip(columns, self.cuts, strict=True))
            and all(
                1 <= len(one) <= 2
                and len({at for at, _ in one}) == len(one)
                and all(at < len(columns) and cell < columns[at].cells(self.cuts[at]) for at, cell in one)
                for one in self.slices
            )
        )

    def members(self, places: NDArray[np.int64], layout: SliceLayout) -> NDArray[np.bool_]:
        """Return which records are in which slice: bool array (n, slices).

        Args:
            places: fine places (n, columns), of `FinePlaces`.
            layout: of the slices.
        """
        cells = [
            column.cells_of(places[:, at], cut)
            for at, (column, cut) in enumerate(zip(layout.columns, self.cuts, strict=True))
        ]
        inside = [np.logical_and.reduce([cells[at] == cell for at, cell in one]) for one in self.slices]
        return np.stack(inside, axis=1)


@dataclass(frozen=True, slots=True)
class ScoredRecords:
    """The records of one side that a site counts.

    Attributes:
        bins: the bin of each record by attack, int64 arrays (n,).
        labels: the class of each, int64 array (n,); of no use where classes are not counted.
        slices: which of the slices it is in, bool array (n, slices).
    """

    bins: Mapping[str, NDArray[np.int64]]
    labels: NDArray[Any] = field(repr=False)
    slices: NDArray[np.bool_] = field(repr=False)


def audit_header(
    layout: AuditLayout, sides: Mapping[str, Sequence[ScoredRecords]], linked: int
) -> NDArray[np.float64]:
    """Return what a site adds to an audit.

    Args:
        layout: of the plan.
        sides: the records by `SIDES`.
        linked: of how many persons, whom another site may know, they are; 0 where each record is by itself.
    """
    header = layout.header.zeros()
    found = layout.header.read(header)
    found["linked"] = linked
    for side, parts in enumerate(sides[name] for name in SIDES):
        for part, attack in itertools.product(parts, layout.attacks):
            bins = part.bins[attack]
            np.add.at(found[attack][side], bins, 1.0)
            if layout.classes:
                np.add.at(found[f"{attack}_by_class"][:, side], (part.labels, bins), 1.0)
            for at in range(part.slices.shape[1]):
                np.add.at(found[f"{attack}_by_slice"][at, side], bins[part.slices[:, at]], 1.0)
    return header


def check_audit(header: NDArray[np.float64], layout: AuditLayout) -> None:
    """Refuse a total that no records have.

    Raises:
        RemoteProtocolError: it holds no counts, or classes, slices or attacks are of other records.
    """
    found = layout.header.read(header)
    fits = bool((header >= 0.0).all() and (header == np.floor(header)).all())
    everybody = found[layout.attacks[0]].sum(axis=1)
    for attack in layout.attacks:
        fits &= bool(found[attack].any(axis=1).all()) and np.array_equal(found[attack].sum(axis=1), everybody)
        if layout.classes:
            fits &= np.array_equal(found[f"{attack}_by_class"].sum(axis=0), found[attack])
        fits &= bool((found[f"{attack}_by_slice"] <= found[attack]).all())
    if not fits:
        raise RemoteProtocolError(
            "the release audit is of counts that no records of both kinds have",
            "hold out more records; or a site sent what no honest site sends: compare the software of the sites",
        )
