"""A masked run whose clip bites is the simulated one, up to the rounding of the ring.

One mean is off by less than e = n C W 2^-f / (sum of w) in every coordinate (`secagg.fixedpoint`), with the C of
its round. The changes are clipped by the same rule on both sides, so nothing else tells the two apart. An error
that is made in round t reaches the end multiplied by the derivatives of the rounds after it. The bound adds up
||J_T ... J_t+1|| e over all rounds, in the largest row sum, and doubles it for what the derivatives change over
such a distance. They are differences of simulated rounds, so the bound owes nothing to the deployed run.
"""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fedfair.aggregation.masking_terms import session_terms
from fedfair.aggregation.requests import GlobalModel, SumRequest
from fedfair.cli.loopback import Workspace, prepare
from fedfair.plan.loading import load_plan
from fedfair.plan.schema import Plan
from fedfair.run.training_run import TrainingRun
from fedfair.secagg.fixedpoint import fraction_bits
from fedfair.simulation.cohort import cohort_of
from fedfair.statistics.table import Purpose
from fedfair.tables.source import load_federation
from fedfair.terms.clip.state import clip_rule
from fedfair.training.assembly import flat_model
from fedfair.training.binding import bound
from tests.interop.federation_kit import FIVE, Federation, metrics, model_files_agree, play
from tests.plans import small_plan

DIFFERENCE = 1e-6
"""How far two models are apart whose rounds tell a derivative: far above rounding, far below what bends."""

Vector = NDArray[np.float64]


class SimulatedRounds:
    """The training rounds of a simulation one by one, from any model and threshold: a vector (d + 1,)."""

    def __init__(self, plan: Plan, root: Path) -> None:
        sites = load_federation(plan, root)
        schema = next(iter(sites.values())).train.schema
        made = bound(plan, schema, root)
        model = flat_model(plan, schema, torch.device("cpu"), root)
        self.training_run = TrainingRun(plan, made.layout, schema, made.vector)
        self.cohort = cohort_of(plan, sites, model, {}, vectorised=True)
        self._upper = math.inf if plan.objective.loss_bound is None else plan.objective.loss_bound

    def after(self, request: SumRequest, state: Vector, clip: float) -> Vector:
        """Return the state after one round: the weighted mean is added, the threshold is projected."""
        totals = self.cohort.totals(request, GlobalModel(state[:-1].copy(), float(state[-1])), clip)
        weight, moved = totals.header
        return np.append(state[:-1] + totals.body / weight, np.clip(state[-1] + moved / weight, 0.0, self._upper))

    def derivative(self, request: SumRequest, state: Vector, clip: float) -> Vector:
        """Return the derivative of a round, (d + 1, d + 1)."""
        here = self.after(request, state, clip)
        moves = DIFFERENCE * np.eye(len(state))
        columns = [self.after(request, state + move, clip) - here for move in moves]
        return np.stack(columns, axis=1) / DIFFERENCE


def growth_bound(plan: Plan, root: Path) -> tuple[float, list[float], int]:
    """Return the bound of this module, the clip of every round, and how many values were clipped."""
    rounds, rule, terms = SimulatedRounds(plan, root), clip_rule(plan), session_terms(plan)
    assert rule is not None
    training_run, cohort, clip, clipped = rounds.training_run, rounds.cohort, rule.first, 0
    members = len(plan.federation.collaborators)
    derivatives, errors, clips = list[Vector](), list[float](), list[float]()
    while (request := training_run.next_sum()) is not None:
        totals = cohort.totals(request, training_run.model, clip)
        if request.purpose is Purpose.TRAINING:
            state = np.append(training_run.model.vector, training_run.model.threshold)
            derivatives.append(rounds.derivative(request, state, clip))
            step = clip * terms.greatest_weight * 2.0 ** -fraction_bits(terms.ring_bits, members)
            errors.append(members * step / float(totals.header[0]))
            clips.append(clip)
        training_run.apply_aggregate(totals)
        clip, clipped = rule.after(clip, totals.sizes), clipped + totals.clipped
        if request.purpose is Purpose.STANDARDISATION and training_run.scaling is not None:
            cohort.apply_scaling(training_run.scaling)
    grown, found = np.eye(len(state)), 0.0
    for derivative, error in zip(reversed(derivatives), reversed(errors), strict=True):
        found += float(np.linalg.norm(grown, np.inf)) * error
        grown = grown @ derivative
    return 2 * found, clips, clipped


def deployed(workspace: Workspace) -> list[dict[str, object]]:
    """Run the federation; return the metrics of its training sums."""
    assert play(workspace, Federation.everybody).state.value == "finished"
    return [line for line in metrics(workspace) if line["purpose"] == "training"]


@pytest.mark.parametrize("batch_size", [pytest.param(16, marks=pytest.mark.slow), "full"])
def test_a_masked_run_whose_clip_bites_gives_the_model_of_the_simulation(
    tmp_path: Path, batch_size: int | str
) -> None:
    plan = small_plan(
        rounds=5, protection={}, names=FIVE[:3], learning_rate=0.3, local_steps=1, batch_size=batch_size
    )
    workspace = prepare(tmp_path, plan)
    sums = deployed(workspace)
    distance, clips, clipped = growth_bound(load_plan(workspace.plan), workspace.folder)
    # Unclipped, the thresholds of the two were apart by 0.03.
    assert distance < 2.5e-4
    model_files_agree(workspace, distance)
    assert [line["clip"] for line in sums] == clips
    assert sum(int(str(line["clipped"])) for line in sums) == clipped > 0
