"""Evaluates a saved model on this machine, with the plan's data: the result of a run without the run.

The sums are those of a deployment's evaluation, and the figures those of a simulation, which knows every loss. The
features are scaled as the model's file says. What is in that file is `saved_model.py`'s business. A user who holds
all the data on one machine has nothing to hide from it. So a plan's differential privacy adds no noise here, and
the result promises none. One site alone evaluates a model on its own records in the same way; nothing is sent.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from fedfair.aggregation.evaluation_file import evaluation_record
from fedfair.errors import LocalProtocolError
from fedfair.ids import ParticipantId
from fedfair.plan.digest import format_digest
from fedfair.plan.schema import Plan
from fedfair.results.writing import exact_evaluation, simulated_result
from fedfair.run.kept_file import own_part
from fedfair.run.saved_model import (
    ModelOrigin,
    check_trained_by,
    evaluation_run,
    load_saved,
    with_method,
    without_noise,
)
from fedfair.simulation.clients import LoopClients
from fedfair.simulation.linear_family import family_facts
from fedfair.simulation.simulate import SimulationOutcome, play
from fedfair.tables.dataset import Splits
from fedfair.tables.source import load_federation
from fedfair.terms.at_sites import OwnPartAlone
from fedfair.training.assembly import flat_model
from fedfair.training.binding import bound
from fedfair.training.client import TrainingClient
from fedfair.training.device import choose_device


def evaluate(plan: Plan, root: Path, model_file: Path, *, exact: bool) -> SimulationOutcome:
    """Return the result of the evaluation of a saved model.

    Args:
        plan: the plan whose data and group sizes are used.
        root: the workspace: the plan's data paths and code start there.
        model_file: the model.
        exact: whether the sums of an exact evaluation are taken too; the figures are exact in any case.

    Raises:
        FedfairError: the data or the model cannot be loaded, or the model is another one than the plan's.
    """
    return evaluate_sites(plan, root, load_federation(plan, root), model_file, exact=exact)


def evaluate_sites(
    plan: Plan, code: Path, sites: Mapping[ParticipantId, Splits], model_file: Path, *, exact: bool
) -> SimulationOutcome:
    """Return the result of the evaluation of a saved model on records that have been read.

    Args:
        plan: the plan that trained it.
        code: where a "module:function" of the plan is looked for.
        sites: the records of all sites, or of one site alone, whose figures these then are.
        model_file: the model.
        exact: as for `evaluate`.

    Raises:
        FedfairError: the model cannot be loaded, or is another one than the plan's.
    """
    start = time.perf_counter()
    schema = next(iter(sites.values())).train.schema
    binding = bound(plan, schema, code)
    saved = load_saved(model_file, plan, binding.layout, schema)
    digest = format_digest(binding.digest)
    remedy = "give the plan that has trained the model: its data may be others, and its losses are not comparable"
    check_trained_by(saved, model_file, digest, remedy)
    plan = without_noise(plan)
    own = own_part(plan, model_file, sites)
    has_kept = own is not None
    training_run = evaluation_run(plan, binding.layout, schema, saved, exact=exact, has_kept=has_kept)
    model = flat_model(plan, schema, choose_device(plan.training.device), code)
    tasks = {name: TrainingClient(plan, name, splits, model) for name, splits in sites.items()}
    cohort = LoopClients(tasks, memories=None if own is None else dict.fromkeys(sites, OwnPartAlone(own)))
    play(training_run, cohort)
    if training_run.evaluated is None:
        raise LocalProtocolError("an evaluation that was played to its end has no sums")
    history = tuple(exact_evaluation(past, cohort.last_losses) for past in training_run.history)
    losses = dict(zip(cohort.names, cohort.last_losses, strict=True))
    result = simulated_result(
        with_method(plan, exact=exact),
        digest,
        replace(training_run.result(), history=history),
        losses,
        classes=schema.classes,
        seconds=time.perf_counter() - start,
        costs=(),
        family=partial(family_facts, plan, sites),
    )
    record = evaluation_record(plan, binding.digest, schema, training_run.evaluated, masked=False)
    origin = ModelOrigin.of_plan(plan, record.plan_digest, schema, binding.initial_weights)
    scaling = training_run.scaling
    return SimulationOutcome(result, training_run.model, model.layout, record, scaling, losses, origin, saved)
