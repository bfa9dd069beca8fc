"""Fine-tunes a federated model on one site's own records, and keeps the result only if the site gains by it.

Decides when it gains: the mean loss of the worst group of its validation records falls. Steps are those of the
plan at a constant rate; after every round the model is judged, and the best one counts. Test records have no part
in the choice, so their figures are honest. Nothing is sent, and the result is no model of the federation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.calibration import Uncalibrated
from fedfair.aggregation.model_layout import Layout
from fedfair.aggregation.requests import GlobalModel
from fedfair.conformal.prediction_sets import NoSets
from fedfair.errors import DataError, LocalProtocolError
from fedfair.fairness.cvar import tail_count
from fedfair.fairness.metrics import group_risk
from fedfair.ids import ParticipantId, RoundNumber
from fedfair.plan.digest import format_digest
from fedfair.plan.schema import Plan
from fedfair.run.kept_file import KeptFile, own_part
from fedfair.run.saved_model import ModelOrigin, TrainedModel, check_trained_by, load_saved
from fedfair.simulation.site_comparison import local_plan
from fedfair.tables.dataset import Splits
from fedfair.terms.at_sites import OwnPart
from fedfair.training.assembly import flat_model
from fedfair.training.binding import bound
from fedfair.training.client import TrainingClient
from fedfair.training.device import choose_device

JUDGED = "validation"


@dataclass(frozen=True, slots=True)
class FineTuning:
    """How a model is fine-tuned.

    Attributes:
        rounds: of local training, at least 1.
        learning_rate: of every step, above 0.
        group_size: of the worst group that must gain, a share in (0, 1].
    """

    rounds: int = 50
    learning_rate: float = 0.01
    group_size: float = 0.1


@dataclass(frozen=True, slots=True)
class WorstGroup:
    """The worst group of one split, before and after.

    Attributes:
        records: how many it has, rounded up.
        before: its mean loss under the federated model.
        after: the same under the fine-tuned one; its worst group may be other records.
    """

    records: int
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class Personalised:
    """The outcome of a fine-tuning.

    Attributes:
        round: after which round the model was best; 0 where the federated model was, which then stays.
        model: the best model.
        layout: where its tensors lie.
        origin: of its file, which says where it was fine-tuned.
        kept: the site's own part that belongs to `model`; None where the plan keeps none.
        worst: by split, validation and where there is one test.
    """

    round: int
    model: TrainedModel
    layout: Layout
    origin: ModelOrigin
    kept: KeptFile | None
    worst: Mapping[str, WorstGroup]


def personalise(
    plan: Plan,
    participant: ParticipantId,
    splits: Splits,
    code: Path,
    model_file: Path,
    terms: FineTuning,
) -> Personalised:
    """Return the federated model, fine-tuned on a site's own records as far as its worst group gains.

    Args:
        plan: the plan that trained the model.
        participant: the site.
        splits: its records.
        code: where a "module:function" of the plan is looked for.
        model_file: the federated model.
        terms: how it is fine-tuned.

    Raises:
        FedfairError: there are no validation records, the model cannot be loaded, or training fails.
    """
    if splits.validation is None or not len(splits.validation):
        raise DataError(
            "this site has no validation records, so nothing says whether its worst group gains",
            "a plan with task.validation_fraction holds some out",
        )
    schema = splits.train.schema
    binding = bound(plan, schema, code)
    saved = load_saved(model_file, plan, binding.layout, schema)
    digest = format_digest(binding.digest)
    check_trained_by(saved, model_file, digest, "give the plan that has trained the model")
    client = _client(plan, participant, splits, code, terms)
    if saved.scaling is not None:
        client.apply_scaling(saved.scaling)
    begun = _Own(saved.model, own_part(plan, model_file, (participant,)))
    chosen, best, least = 0, begun, _worst(client, begun, terms.group_size)
    current = begun
    for number in range(1, terms.rounds + 1):
        current = _next(client, current, number)
        if not np.isfinite(current.model.vector).all():
            break  # Steps that are too long end here; what came before them counts.
        found = _worst(client, current, terms.group_size)
        if found < least:
            chosen, best, least = number, current, found
    origin = ModelOrigin.of_plan(plan, digest, schema, binding.initial_weights)
    origin = replace(origin, fine_tuned_at=str(participant))
    worst = {
        name: WorstGroup(
            math.ceil(tail_count(len(part), terms.group_size)),
            _worst(client, begun, terms.group_size, name),
            _worst(client, best, terms.group_size, name),
        )
        for name, part in ((JUDGED, splits.validation), ("test", splits.test))
        if part
    }
    # The calibration and the sets of the federation's model are those of another one.
    why = "it was fine-tuned after its evaluation"
    tuned = replace(saved, model=best.model, calibration=Uncalibrated(why), sets=NoSets(why))
    kept = None if best.kept is None else KeptFile(participant, best.kept)
    return Personalised(chosen, saved if best is begun else tuned, binding.layout, origin, kept, worst)


def _client(
    plan: Plan, participant: ParticipantId, splits: Splits, code: Path, terms: FineTuning
) -> TrainingClient:
    local = local_plan(plan, participant)
    rates = {
        "rounds": terms.rounds,
        "learning_rate": terms.learning_rate,
        "threshold_learning_rate": None,
        "schedule": "constant",
    }
    tuned = local.model_copy(update={"training": local.training.model_copy(update=rates)})
    model = flat_model(tuned, splits.train.schema, choose_device(plan.training.device), code)
    return TrainingClient(tuned, participant, splits, model)


@dataclass(frozen=True, slots=True)
class _Own:
    """A model at one site: what it shares, and the part that it keeps, array (k,) or None."""

    model: GlobalModel
    kept: NDArray[np.float64] | None = field(repr=False)


def _next(client: TrainingClient, own: _Own, number: int) -> _Own:
    """Return the model after one more round of local steps."""
    change = client.descent.training_change(own.model, RoundNumber(number), 1, remembered=OwnPart(own.kept))
    if change is None:
        raise LocalProtocolError("a site without training records cannot fine-tune a model")
    model = GlobalModel(own.model.vector + change.model, max(0.0, own.model.threshold + change.threshold))
    kept = client.descent.kept
    return _Own(model, None if kept is None else kept.astype(np.float64))


def _worst(client: TrainingClient, own: _Own, group_size: float, split: str = JUDGED) -> float:
    """Return the mean loss of the worst group of a split."""
    client.records.begin_kept(own.kept)
    values = client.records.losses(own.model, (split,))[split].values
    return group_risk(values, group_size).worst if np.isfinite(values).all() else math.inf
