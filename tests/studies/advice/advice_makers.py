"""Advice made by hand: curves of a few settings, with the figures that a test is about."""

import math
from collections.abc import Sequence

from fedfair.plan.schema import Plan
from fedfair.studies.advice.choice import recommend, served_from
from fedfair.studies.advice.document import (
    FORMAT,
    AdviceDocument,
    AdvisedFigures,
    AdvisedGroup,
    AdvisedModel,
    FamilyLimits,
)
from fedfair.studies.advice.words import advice_notes, advice_sentences
from tests import plans

GUESS = math.log(2)
SIZES = (0.1, 0.3, 0.5)


def figures(mean: float, worst: Sequence[float], error: float, accuracy: float = 0.8) -> AdvisedFigures:
    groups = tuple(AdvisedGroup(size=size, worst=one, error=error) for size, one in zip(SIZES, worst, strict=True))
    return AdvisedFigures(mean=mean, error=error, accuracy=accuracy, groups=groups)


def plain(mean: float = 0.4, worst: Sequence[float] = (1.9, 0.9, 0.72), error: float = 0.01) -> AdvisedModel:
    own = figures(mean, worst, error)
    return AdvisedModel(
        worst_group_size=1.0, tradeoff=1.0, train=own, held_out=own,
        worst_gain=0.0, worst_gain_error=0.0, mean_cost=0.0, mean_cost_error=0.0,
    )  # fmt: skip


def model(
    size: float,
    tradeoff: float,
    mean: float,
    worst: Sequence[float],
    *,
    error: float = 0.01,
    gain_error: float = 0.01,
) -> AdvisedModel:
    """Return a model beside `plain()`."""
    own, before = figures(mean, worst, error), plain().held_out
    place = SIZES.index(size)
    return AdvisedModel(
        worst_group_size=size, tradeoff=tradeoff, train=own, held_out=own,
        worst_gain=before.groups[place].worst - worst[place], worst_gain_error=gain_error,
        mean_cost=mean - before.mean, mean_cost_error=0.004,
    )  # fmt: skip


PROTECTED = (
    model(0.1, 0.01, 0.69, (0.694, 0.694, 0.693)), model(0.3, 0.01, 0.60, (0.90, 0.660, 0.650)),
    model(0.3, 0.1, 0.50, (1.00, 0.670, 0.640)), model(0.3, 0.3, 0.45, (1.20, 0.690, 0.640)),
    model(0.3, 0.6, 0.42, (1.50, 0.760, 0.660)), model(0.5, 0.1, 0.42, (1.50, 0.780, 0.650)),
)  # fmt: skip
"""Three quarters of the gain at 0.3 are had at 0.72, guessing is 0.693."""


def advice(
    models: Sequence[AdvisedModel] = PROTECTED,
    base: AdvisedModel | None = None,
    family: FamilyLimits | None = None,
    plan: Plan | None = None,
    **changed: object,
) -> AdviceDocument:
    """Return a whole document with its words."""
    first, own = base or plain(), plan or plans.parsed()
    made = AdviceDocument(
        format=FORMAT, federation=own.federation.name, model="a linear model", fitted="solver", rounds=None,
        folds=5, records=200, records_available=200, classes=2, guess=GUESS, majority=0.6, plan_size=0.1,
        plan_tradeoff=0.01, sizes=SIZES, plain=first, models=tuple(models),
        family=family or FamilyLimits(lowest=0.218, highest=0.218, method="linear-program"),
        served_from=served_from(first, models, GUESS, surely=False),
        surely_served_from=served_from(first, models, GUESS, surely=True),
        recommendation=recommend(first, models, GUESS), sentences=(), notes=(), seconds=12.0,
    ).model_copy(update=changed)  # fmt: skip
    return made.model_copy(update={"sentences": advice_sentences(made), "notes": advice_notes(made, own)})
