"""Values of the product as messages, and back: what a request holds, what a site remembers, what records are like.

Which memories there are is read off the rooms of the plan's terms; nothing here names a term or a statistic.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collaborator.computing import messages
from fedfair.aggregation.model_layout import Layout
from fedfair.aggregation.reference import References
from fedfair.aggregation.requests import GlobalModel, SumRequest
from fedfair.aggregation.spec import SumSpec
from fedfair.errors import RemoteProtocolError
from fedfair.fairness.record_losses import Losses, SiteLosses
from fedfair.ids import RoundNumber
from fedfair.statistics.table import Purpose, purpose_named
from fedfair.tables.site_survey import SiteColumn, SiteSurvey
from fedfair.terms.at_sites import NOTHING, OwnPart, Remembered
from fedfair.terms.table import TERMS

WIDTHS: dict[int, np.dtype[np.floating]] = {8: np.dtype(np.float64), 4: np.dtype(np.float32)}
"""Of a model's vector, by bytes of a number."""

_LOSSES = ("values", "labels", "predictions", "scores", "figures", "excess", "answered", "has_classes")


def of_model(model: GlobalModel) -> messages.Model:
    """Return a global model as a message."""
    return messages.Model(model.vector, float(model.threshold))


def model_of(stated: messages.Model) -> GlobalModel:
    """Return the global model of a message."""
    return GlobalModel(stated.vector, stated.threshold)


@functools.cache
def _memories() -> dict[str, type[Remembered]]:
    """Return every class of what a site remembers, by name."""
    rooms = [importlib.import_module(f"fedfair.terms.{term.name}.site") for term in TERMS if term.at_sites]
    found = [one for room in rooms for one in vars(room).values() if isinstance(one, type)]
    return {one.__name__: one for one in (*found, OwnPart) if issubclass(one, Remembered)}


def of_memory(remembered: Remembered) -> messages.Memory:
    """Return what a site remembers as a message."""
    whole: dict[str, int] = {}
    reals: dict[str, float] = {}
    arrays: dict[str, NDArray[Any]] = {}
    for one in fields(remembered) if remembered is not NOTHING else ():  # type: ignore[arg-type]
        value = getattr(remembered, one.name)
        if isinstance(value, np.ndarray):
            arrays[one.name] = value
        elif isinstance(value, int):
            whole[one.name] = value
        elif value is not None:
            reals[one.name] = float(value)
    return messages.Memory(type(remembered).__name__, whole, reals, arrays)


def memory_of(stated: messages.Memory) -> Remembered:
    """Return what a message says that a site remembers.

    Raises:
        RemoteProtocolError: no term remembers such a thing.
    """
    kind = _memories().get(stated.kind)
    if kind is None:
        raise RemoteProtocolError(f"no term remembers a {stated.kind}")
    if kind is Remembered:
        return NOTHING
    given: dict[str, Any] = {**stated.whole, **stated.reals, **stated.arrays}
    names = [one.name for one in fields(kind)]  # type: ignore[arg-type]
    if not given.keys() <= set(names):
        raise RemoteProtocolError(f"a {stated.kind} with other fields than {', '.join(names)}")
    return kind(**{name: given.get(name) for name in names})


def of_request(
    request: SumRequest, model: GlobalModel, remembered: Remembered, seed: str
) -> messages.AskContribution:
    """Return a request as a message; its terms stay with the service, which remembers by them."""
    return messages.AskContribution(
        request.purpose.value, int(request.round), request.attempt, request.query, request.loss_unit, request.part,
        of_model(model), of_memory(remembered), seed,
    )  # fmt: skip


def request_of(stated: messages.AskContribution, specs: Mapping[Purpose, SumSpec]) -> SumRequest:
    """Return the request of a message. Raises LocalProtocolError where the plan makes no such sum."""
    purpose = purpose_named(stated.purpose)
    number, spec = RoundNumber(stated.round), specs[purpose]
    return SumRequest(
        purpose, number, stated.attempt, spec, stated.query, loss_unit=stated.loss_unit, part=stated.part
    )


def of_references(held: References) -> messages.Judge:
    """Return references as a message."""
    return messages.Judge(
        held.present, held.best, held.sums, held.best_at, float(held.best_loss), held.temperature
    )


def references_of(stated: messages.Judge) -> References:
    """Return the references of a message."""
    told = (stated.sums, stated.best_at, stated.best_loss, stated.temperature)
    return References(stated.present, stated.best, *told)


def layout_of(stated: messages.Bound) -> Layout:
    """Return the layout of the model that a worker has made.

    Raises:
        RemoteProtocolError: its vector is no model's, or does not have that layout.
    """
    dtype = WIDTHS.get(stated.vector.dtype.itemsize)
    if dtype is None or stated.vector.dtype != dtype or stated.vector.ndim != 1:
        raise RemoteProtocolError(f"a model of {stated.vector.dtype} and shape {stated.vector.shape}")
    if any(axis < 0 for entry in stated.entries for axis in entry.shape):
        raise RemoteProtocolError("a tensor with an axis below 0")
    layout = Layout(stated.entries, dtype, bytes.fromhex(stated.frozen))
    if layout.dimension != stated.vector.size:
        raise RemoteProtocolError(f"a layout of {layout.dimension} values and a vector of {stated.vector.size}")
    return layout


def of_survey(held: SiteSurvey) -> messages.Survey:
    """Return a site's part of a survey as a message."""
    columns = (
        messages.Column(one.name, one.ordered, one.common, one.distinct, one.present, one.missing)
        for one in held.columns
    )
    return messages.Survey(held.header, tuple(columns))


def survey_of(stated: messages.Survey) -> SiteSurvey:
    """Return the part of a survey of a message.

    Raises:
        RemoteProtocolError: it has an array of another kind.
    """
    if any(array.dtype != np.float64 or array.ndim != 1 for array in (stated.header, *_ordered(stated))):
        raise RemoteProtocolError("a survey with an array that is no vector of float64")
    columns = (
        SiteColumn(one.name, one.ordered, one.common, one.distinct, one.present, one.missing)
        for one in stated.columns
    )
    return SiteSurvey(stated.header, tuple(columns))


def _ordered(stated: messages.Survey) -> list[NDArray[Any]]:
    return [one.ordered for one in stated.columns]


def of_losses(losses: SiteLosses) -> messages.LossesFound:
    """Return the losses of a site's records as a message."""
    named = {
        split: messages.SplitLosses(*(getattr(found, name) for name in _LOSSES)) for split, found in losses.items()
    }
    return messages.LossesFound(named)


def losses_of(stated: messages.LossesFound) -> dict[str, Losses]:
    """Return the losses of a message, by split."""
    return {
        split: Losses(**{name: getattr(found, name) for name in _LOSSES}) for split, found in stated.splits.items()
    }
