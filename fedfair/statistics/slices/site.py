"""What one site adds to a step of slices: counts of its records by their cells, and sums of their measures."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.contribution import Contribution
from fedfair.aggregation.loss_histogram import SPLITS
from fedfair.aggregation.requests import FeatureScaling, GlobalModel, SumRequest
from fedfair.aggregation.slice_columns import FinePlaces
from fedfair.aggregation.slice_outcomes import counted_answers
from fedfair.aggregation.slice_sums import (
    STEPS,
    SliceQuestion,
    greatest_measure,
    levels_of,
    slice_header,
    slice_layout,
)
from fedfair.errors import LocalProtocolError
from fedfair.fairness.record_losses import SiteLosses
from fedfair.ids import ParticipantId
from fedfair.plan.schema import Plan
from fedfair.tables.dataset import Splits
from fedfair.tables.feature_storage import column_of
from fedfair.tables.seeds import array_generator
from fedfair.terms.at_sites import Remembered
from fedfair.training.site_statistics import AllSites, Contribute, SiteParts, SiteStatistic, added


def _at_site(parts: SiteParts) -> Contribute:
    records, plan = parts.records, parts.records.plan
    schema = records.splits.train.schema
    layout = slice_layout(plan, schema)

    def contribution(request: SumRequest, model: GlobalModel, _remembered: Remembered) -> Contribution:
        """Return the header of `aggregation.slice_sums`.

        Raises:
            LocalProtocolError: these records are protected, and slices carry no noise.
        """
        if parts.protection is not None:
            raise LocalProtocolError("slices of protected records carry no noise")
        question = SliceQuestion.of(request.asked, layout)
        found: SiteLosses = {}
        replaced = 0
        if question.number == STEPS:
            found, replaced = records.summable_losses(model, (SPLITS[question.split],))
        return parts.header_only(
            slice_addend(plan, records.participant, records.splits, records.scaling, question, found), replaced
        )

    return contribution


def slice_addend(
    plan: Plan,
    participant: ParticipantId,
    splits: Splits,
    scaling: FeatureScaling | None,
    question: SliceQuestion,
    losses: SiteLosses,
) -> NDArray[np.float64]:
    """Return what a site adds to a step of slices; zeros where it has no records of the split.

    Args:
        plan: the plan.
        participant: whose records they are; what is rounded up follows from it.
        splits: its records, unscaled.
        scaling: of the features; None where the plan makes none.
        question: what is asked.
        losses: of the split, under the model; none before step 3.
    """
    schema, name = splits.train.schema, SPLITS[question.split]
    layout, dataset = (
        slice_layout(plan, schema),
        {"train": splits.train, "validation": splits.validation}.get(name, splits.test),
    )
    if dataset is None or not len(dataset):
        return layout.header.zeros()
    places = FinePlaces(plan, layout.columns).of(partial(column_of, dataset.features), len(dataset), scaling)
    if question.number < STEPS:
        return slice_header(question, places, None, layout)
    draws = array_generator(plan.training.seed, "slice rounding", name, participant).random(len(dataset))
    levels = levels_of(losses[name].measured, greatest_measure(plan, schema.classes), draws)
    return slice_header(question, places, levels, layout, counted_answers(losses[name], layout, draws))


def _at_all_sites(sites: AllSites, request: SumRequest, model: GlobalModel) -> NDArray[np.float64]:
    """Return the sum of what each site adds."""
    plan = sites.plan
    question = SliceQuestion.of(request.asked, slice_layout(plan, sites.sites[0].train.schema))
    nothing: list[SiteLosses] = [{} for _ in sites.names]
    found = sites.losses(model, (SPLITS[question.split],)) if question.number == STEPS else nothing
    each = zip(sites.names, sites.sites, found, strict=True)
    return added(slice_addend(plan, name, own, sites.scaling, question, losses) for name, own, losses in each)


SITE = SiteStatistic(_at_site, _at_all_sites)
