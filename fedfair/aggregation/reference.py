"""The references of a run: perceptrons of which each has not seen one part of the records. No torch.

    fold f of a site's training records is judged by the reference f, which is trained on all other folds
    a held-out record is judged by all references together

A sum of the references is a round of plain averaging (McMahan et al. 2017) of all of them at once: every site adds
n_f times the change of reference f, where n_f are its records outside fold f. Beside it stand the losses of the
references as they were broadcast on the fold that each has not seen, at each of several temperatures (Guo et al.
2017). So every sum tells how good the references before it are, on records that they were not trained on, and no
validation records are needed. The best are kept, with their best temperature; they are done after so many sums
without a better one. Cross-fitting: Chernozhukov et al. 2018; for a teacher's outputs, Dao et al. 2021.

A record's own label counts for its answer in two numbers only, the best moment and temperature of all records.

Those losses never vary. So a site tells them in its first attempt at a sum alone: no two sums over different sites
can be subtracted to show the loss of one.

Decides shapes, the first values, and what an opened sum makes of them. What a site computes is
`training.reference_training`'s, what a reference says of a record `training.reference_answers`'.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.header import NO_RECORDS, Bits, Field, Header, Number, one_of
from fedfair.aggregation.requests import vector_sha256
from fedfair.aggregation.running_sum import Totals
from fedfair.aggregation.training_sum import UPDATE
from fedfair.errors import PlanError, RemoteProtocolError
from fedfair.plan.derived import is_masked, measures_excess, reference_of
from fedfair.plan.excess_terms import reference_room
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.losses import Loss, SquaredLoss, SurvivalLoss
from fedfair.plan.schema import Plan
from fedfair.plan.sections import ReferenceSection
from fedfair.signed_message import labelled_message

TEMPERATURES = (0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0)
"""Outputs are divided by one of these; of a number, by none."""

NATURAL = TEMPERATURES.index(1.0)

LOSS_STEP = 2.0**-8
"""The loss of a held-out record counts in these steps, so that the sum over a lone record tells little of it."""

MAX_REFERENCE_LOSS = 16.0
"""No held-out loss counts for more."""

_HELD_OUT_VALUES = MAX_REFERENCE_LOSS / LOSS_STEP + 1

GREATEST_CHANGE = 2.0**30
"""No number of a site's weighted change counts for more: a change of 2^10 of one weight at a million records."""

CHANGE_STEP = 2.0**-20
"""A change of a weight counts in these steps. So no more digits of it leave a site, and sums are exact in any
order, masked or not: fewer than 2^23 records at a change of 2^10 have 53 bits."""


@dataclass(frozen=True, slots=True)
class ReferenceShape:
    """The shape of the references of a plan.

    Attributes:
        widths: of the features, of each hidden layer, and of the outputs.
        folds: how many references there are.
    """

    widths: tuple[int, ...]
    folds: int

    @property
    def layers(self) -> tuple[tuple[int, int], ...]:
        """Return inputs and outputs of every layer."""
        return tuple(itertools.pairwise(self.widths))

    @property
    def dimension(self) -> int:
        """Return how many parameters one reference has."""
        return sum((inputs + 1) * outputs for inputs, outputs in self.layers)


def reference_shape(plan: Plan, schema: FeatureSchema) -> ReferenceShape:
    """Return the shape of the references of a plan."""
    stated, inputs = reference_of(plan), math.prod(schema.input_shape)
    return ReferenceShape((inputs, *stated.hidden, reference_outputs(plan.task.loss, schema)), stated.folds)


def check_room(plan: Plan, schema: FeatureSchema) -> None:
    """Refuse references that no masked sum has room for; a plan by the loss, or without masks, has none to refuse.

    Raises:
        PlanError: they are too wide for these features and answers.
    """
    if not (measures_excess(plan) and is_masked(plan)):
        return
    widths = reference_shape(plan, schema).widths
    fault = reference_room(reference_of(plan), widths[0], widths[-1])
    if fault is not None:
        raise PlanError(f"objective.measure: {fault.message}", fault.remedy)


def reference_outputs(loss: Loss, schema: FeatureSchema) -> int:
    """Return how many outputs a reference has: one for each class, label or interval, and one for a number."""
    match loss:
        case SquaredLoss():
            return 1
        case SurvivalLoss(intervals=intervals):
            return len(intervals)
        case _:
            return schema.classes or math.prod(schema.output_shape)


@dataclass(frozen=True)
class References:
    """The references at one moment of a run; no array is ever changed.

    Attributes:
        present: float64 array (folds * parameters,), of the next sum.
        best: likewise, those with the lowest loss on the records that they have not seen.
        sums: how many sums are behind them.
        best_at: how many were behind the best; meaningless before the first sum.
        best_loss: the mean of those losses, in units of `per_record`; infinite before the first sum.
        temperature: at which it is so low, by its place in `TEMPERATURES`.
    """

    present: NDArray[np.float64]
    best: NDArray[np.float64]
    sums: int = 0
    best_at: int = 0
    best_loss: float = math.inf
    temperature: int = NATURAL

    @property
    def have_learnt(self) -> bool:
        """Return whether any sum made them better than untrained ones, on records that they have not seen."""
        return self.best_at > 0

    @property
    def tell_nothing(self) -> bool:
        """Return whether not even the losses of the best are known: each counted as the greatest there is."""
        return self.best_loss >= MAX_REFERENCE_LOSS

    def are_done(self, stated: ReferenceSection) -> bool:
        """Return whether the references are trained."""
        return stated.run is not None or self.sums >= stated.rounds or self.sums - self.best_at > stated.patience

    @cached_property
    def sha256(self) -> Mapping[str, bytes]:
        """Return the SHA-256 (32 bytes) of both vectors, by name: every state after the last sum has the same."""
        return {"present": vector_sha256(self.present), "best": vector_sha256(self.best)}

    @cached_property
    def digest(self) -> bytes:
        """Return 32 bytes that stand for all of it."""
        told = (self.sums, self.best_at, self.best_loss, self.temperature)
        fields = [*self.sha256.values(), struct.pack("<QQdQ", *told)]
        return hashlib.sha256(labelled_message("fedfair/references/1", fields)).digest()


def first_references(plan: Plan, schema: FeatureSchema) -> References:
    """Return the references before their first sum: uniform within 1 / sqrt(inputs) of each layer, from the seed.

    All folds begin alike. The last layer begins at 0, so that the first references say nothing.
    """
    shape = reference_shape(plan, schema)
    seed = hashlib.sha256(labelled_message("fedfair/references-seed/1", [str(plan.training.seed).encode()]))
    source = np.random.Generator(np.random.PCG64(int.from_bytes(seed.digest()[:16], "big")))
    parts = []
    for inputs, outputs in shape.layers:
        drawn = source.random((inputs + 1) * outputs) * 2.0 - 1.0
        parts.append(drawn / math.sqrt(max(inputs, 1)))
    parts[-1] *= 0.0
    vector = np.tile(np.concatenate(parts), shape.folds)
    return References(vector, vector)


def reference_header(plan: Plan, schema: FeatureSchema) -> Header:
    """Return the layout of a sum of the references.

    Returns:
        "records" (), the training records; "judged" (), those whose loss is told; "weights" (folds,), the records
        outside each fold; "held_out" (temperatures,), the sums of losses on the fold that each reference has not
        seen, in units of `LOSS_STEP`; "changes" (folds, parameters), weighted.

    Raises:
        PlanError: the plan's sums are masked, and have no room for so many numbers.
    """
    check_room(plan, schema)
    shape = reference_shape(plan, schema)
    return Header(
        Field("records", Number.COUNT, lone=Bits(0)),
        Field("judged", Number.COUNT, lone=Bits(1)),
        Field("weights", Number.COUNT, (shape.folds,), lone=one_of(shape.folds)),
        Field("held_out", Number.COUNT, (len(TEMPERATURES),), lone=Bits(math.log2(_HELD_OUT_VALUES), each=True)),
        Field("changes", Number.REAL, (shape.folds, shape.dimension), lone=UPDATE),
    )


def stepped_references(references: References, totals: Totals, layout: Header) -> References:
    """Return the references after a sum.

    Args:
        references: that were broadcast.
        totals: of the sum.
        layout: from `reference_header`.

    Raises:
        RemoteProtocolError: no site has a training record outside some fold, or the sum holds what no sum of
            honest sites does.
    """
    sums = layout.read(totals.header)
    records, weights, held_out = float(sums["records"]), sums["weights"], sums["held_out"]
    if records < 1.0 or not (weights >= 1.0).all() or (weights > records).any():
        raise RemoteProtocolError(
            f"a sum of the references is over {records:g} training records, and {weights.min():g} outside one of "
            f"the folds: {NO_RECORDS}",
            "a reference needs records of at least two folds; look at the plan's filters",
        )
    if (held_out < 0.0).any() or (held_out * LOSS_STEP > records * MAX_REFERENCE_LOSS).any():
        raise RemoteProtocolError(
            "the losses of the references are none that so many records can have",
            "a site sent numbers that no honest site sends; compare the software of the sites",
        )
    if not (np.abs(sums["changes"]) <= GREATEST_CHANGE * totals.contributors).all():
        raise RemoteProtocolError(
            "the references would move further than honest sites move them",
            "a site sent numbers that no honest site sends; compare the software of the sites",
        )
    present = references.present + (sums["changes"] / weights[:, None]).ravel()
    after = replace(references, present=present, sums=references.sums + 1)
    if float(sums["judged"]) != records:
        # Some site has told its losses in an earlier attempt, which was lost.
        return after if math.isfinite(references.best_loss) else replace(after, best=present)
    # The natural one where it is as good as any: always so for a number, whose losses all places repeat.
    temperature = NATURAL if held_out[NATURAL] <= held_out.min() else int(np.argmin(held_out))
    loss = float(held_out[temperature]) * LOSS_STEP / records
    if loss < references.best_loss:
        return replace(
            after,
            best=references.present,
            best_at=references.sums,
            best_loss=loss,
            temperature=temperature,
        )
    return after
