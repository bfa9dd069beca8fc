"""A cohort gives what its tasks give, one by one and together."""

import numpy as np
import pytest

from fedfair.aggregation.requests import GlobalModel
from fedfair.errors import LocalProtocolError, RemoteProtocolError
from fedfair.ids import RoundNumber
from fedfair.simulation.clients import AskedSteps, LoopClients
from fedfair.simulation.simulate import play
from tests import bc10

FIRST = RoundNumber(1)


def cohort_of(federation: bc10.Federation) -> LoopClients:
    return LoopClients({task.participant: task for task in federation.tasks})


def thirds(**training: object) -> bc10.Federation:
    return bc10.Federation(bc10.plan(3, **training), bc10.sites(bc10.random_thirds()))


def thresholds(
    cohort: LoopClients, model: GlobalModel, number: RoundNumber, steps: int | None = None
) -> np.ndarray:
    """By how much the local steps of each move the threshold."""
    found = [task.descent.training_change(model, number, 1, steps=steps) for task in cohort._tasks]
    return np.array([change.threshold for change in found if change is not None])


class WeightedMean:
    """FedSRCVaR once more, from the changes that every site would have to reveal."""

    def round(self, cohort: LoopClients, model: GlobalModel, number: RoundNumber) -> GlobalModel:
        share = cohort.weights / cohort.weights.sum()
        changes = cohort.changes(model, AskedSteps(number))
        moved = float(share @ thresholds(cohort, model, number))
        return GlobalModel(model.vector + share @ changes, model.threshold + moved)


def test_the_weighted_mean_of_single_changes_is_what_the_sum_gives() -> None:
    revealed, summed = thirds(local_steps=3), thirds(local_steps=3)
    play(revealed.training_run, cohort_of(revealed), WeightedMean())
    play(summed.training_run, cohort_of(summed))
    # Twenty rounds of a few roundings each, on parameters and losses of order one.
    np.testing.assert_allclose(
        revealed.training_run.model.vector, summed.training_run.model.vector, rtol=0, atol=1e-12
    )
    assert revealed.training_run.model.threshold == pytest.approx(summed.training_run.model.threshold, abs=1e-12)
    assert len(revealed.training_run.history) == len(summed.training_run.history)


def test_steps_and_weights_of_records_change_what_a_round_learns_from() -> None:
    long, short = cohort_of(thirds(local_steps=4, batch_size=16)), cohort_of(thirds(local_steps=2, batch_size=16))
    start = GlobalModel(np.zeros(22), 0.5)
    early, whole = long.changes(start, AskedSteps(FIRST, steps=2)), short.changes(start, AskedSteps(FIRST))
    np.testing.assert_array_equal(early, whole)
    np.testing.assert_array_equal(thresholds(long, start, FIRST, 2), thresholds(short, start, FIRST))
    # With a full batch of n, weights n/m on m records and 0 elsewhere give the gradient of these m alone.
    federation = thirds(algorithm="fedavg")
    start, (part, *_) = GlobalModel(np.zeros(22), 1.0), bc10.random_thirds()
    weights = np.zeros(len(part))
    weights[:10] = len(part) / 10
    weighted = cohort_of(federation).changes(start, AskedSteps(FIRST, [0], record_weights=[weights]))
    alone = bc10.Federation(bc10.plan(1, algorithm="fedavg"), bc10.sites([part[:10]]))
    np.testing.assert_allclose(weighted, cohort_of(alone).changes(start, AskedSteps(FIRST)), rtol=0, atol=1e-15)
    cohort, start = cohort_of(thirds(algorithm="fedavg", batch_size=8)), GlobalModel(np.zeros(22), 1.0)
    plain = cohort.changes(start, AskedSteps(FIRST))
    twice = AskedSteps(FIRST, record_weights=[np.full(n, 2.0) for n in cohort.counts])
    np.testing.assert_allclose(cohort.changes(start, twice), 2 * plain, rtol=1e-14)


def test_members_are_asked_in_their_order_and_one_without_records_is_named() -> None:
    cohort, start = cohort_of(thirds(local_steps=2)), GlobalModel(np.zeros(22), 0.5)
    both = cohort.changes(start, AskedSteps(FIRST, [2, 0]))
    for place, member in enumerate([2, 0]):
        np.testing.assert_array_equal(both[place], cohort.changes(start, AskedSteps(FIRST, [member]))[0])
    federation = bc10.Federation(bc10.plan(2), bc10.sites([np.arange(5), np.arange(0)]))
    with pytest.raises(LocalProtocolError, match="site-1 has no training records"):
        cohort_of(federation).changes(GlobalModel(np.zeros(22), 1.0), AskedSteps(FIRST))


def test_a_training_run_applies_only_finite_models_in_a_training_round() -> None:
    federation = thirds()
    with pytest.raises(LocalProtocolError, match="cannot be adopted at evaluation"):
        federation.training_run.apply_model(GlobalModel(np.zeros(22), 1.0), 3)
    federation.next_training()
    before = federation.training_run.model.vector.copy()
    for model in (GlobalModel(np.full(22, np.nan), 1.0), GlobalModel(np.zeros(22), np.inf)):
        with pytest.raises(RemoteProtocolError):
            federation.training_run.apply_model(model, 3)
    np.testing.assert_array_equal(federation.training_run.model.vector, before)
    assert federation.training_run.rounds_done == 0
