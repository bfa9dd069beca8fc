"""Robbing the federation: a claimed sum that plants trap weights is refused; without the check it robs a record.

Source: Fowl et al. 2022 ("Robbing the Fed"), Boenisch et al. 2023 ("When the curious abandon honesty"). All
rows of the first layer are one direction w, its biases cut the projections w x into bins, and the next layer takes
every neuron alike. Then the gradients of two neighbouring neurons differ by the records of one bin alone: g x in
the row, g in the bias. Their quotient is the record, whatever the records of all sites add, masked or not.

The trap is a claimed sum of the first round, within the clip times the weights, so nothing but its tag is wrong.
In the broken variant every site approved a plan without the check, and the aggregator robs the next honest sum.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fedfair.aggregation.masked_encoding import sum_shapes
from fedfair.aggregation.masking_terms import roster_of, session_plan
from fedfair.aggregation.model_layout import Layout
from fedfair.data.dataset import Dataset, Splits
from fedfair.ids import ParticipantId
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan
from fedfair.secagg.checks import Check, SecaggError
from fedfair.secagg.effects import ServerEffect
from fedfair.secagg.fixedpoint import decode_body, packed_body
from fedfair.secagg.opened_sum import OpenedSum, body_code
from fedfair.secagg.server import Server
from fedfair.training.binding import plan_binding
from tests.rounds.replayed_play import NAMES, ReplayedPlay, plan_of
from tests.rounds.test_replayed_run import Chaos

NEURONS, COLUMNS, RECORDS = 64, 30, 8
DIRECTION = 0.5 * np.where(np.arange(COLUMNS) % 2, 1.0, -1.0)
"""w, within the clip of the first round, which is 1."""

EDGES = np.linspace(-0.75, 0.75, NEURONS)
"""Where the bins of w x begin; records lie between 0 and 1, so that w x has mean 0 and deviation 0.8."""

TAKEN_ALIKE = 0.02
"""The weight of every neuron in the one output, and minus that in the other."""


@dataclass(frozen=True)
class Trap:
    """The model that the aggregator wants, as parts of the flat vector."""

    weights: slice
    biases: slice
    outputs: slice

    @classmethod
    def of(cls, layout: Layout) -> Trap:
        """Return where it lies in a layout."""
        at = {entry.name: part for entry, part in layout.slices()}
        return cls(at["hidden1.weight"], at["hidden1.bias"], at["output.weight"])

    def set_in(self, model: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return a model with the trap in place of its own weights."""
        trapped = model.copy()
        trapped[self.weights] = np.tile(DIRECTION, NEURONS)
        trapped[self.biases] = -EDGES
        trapped[self.outputs] = np.repeat([TAKEN_ALIKE, -TAKEN_ALIKE], NEURONS)
        return trapped

    def robbed(self, change: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return what every bin holds, (bins, columns): a record where it holds one, NaN where it holds none.

        Args:
            change: of the model, or any multiple of it.
        """
        rows = -np.diff(change[self.weights].reshape(NEURONS, COLUMNS), axis=0)
        biases = -np.diff(change[self.biases])
        held = np.abs(biases) > 1e-2 * np.abs(biases).max()
        return np.where(held[:, None], rows / np.where(held, biases, 1.0)[:, None], np.nan)


class RobbingServer(Server):
    """An aggregator that claims, instead of the first training sum, the one that plants the trap."""

    claims: NDArray[np.float64] | None = None  # the change of the model that it wants
    seen: tuple[OpenedSum, ...] = ()  # the training sums that it has really opened

    def _close_answers(self) -> list[ServerEffect]:
        start = self._current.start
        effects = super()._close_answers()
        opened, told = self._opened, self._announcement
        if opened is None or told is None or start.purpose != "training":
            return effects
            # The product makes the body into the model, so this aggregator keeps its own copy.
        self.seen += (replace(opened, body=opened.body.copy()),)
        if self.claims is not None:
            code = body_code(self._terms, start, self._shapes["training"])
            assert np.abs(self.claims).max() < start.clips[0]
            units = np.rint(opened.weight * self.claims / code.step(start.clips[0])).astype(np.int64)
            words = units.astype(np.int32).view(np.uint32)
            self._announcement = replace(told, vector=packed_body(words, self._terms.ring_bits))
            self._opened = replace(opened, body=decode_body(words, code, self._body_dtype))
            self.claims = None
        return effects


def robbing_plan(*, check_sums: bool) -> Plan:
    return plan_of(
        2,
        {"most_records": RECORDS, "clip": 1.0, "check_sums": check_sums},
        every=100,
        task={"standardize": "none", "model": {"name": "mlp", "hidden": [NEURONS]}},
        algorithm="fedavg",
        local_steps=1,
        batch_size="full",
        learning_rate=2.0,
    )


def records_of(schema: FeatureSchema) -> dict[ParticipantId, Splits]:
    random = np.random.default_rng(5)
    return {
        ParticipantId(name): Splits(
            Dataset(random.uniform(size=(RECORDS, COLUMNS)), random.integers(0, 2, RECORDS), schema)
        )
        for name in NAMES
    }


class Robbery:
    """One federation whose aggregator robs."""

    def __init__(self, folder: Path, *, check_sums: bool) -> None:
        plan = robbing_plan(check_sums=check_sums)
        binding = plan_binding(plan, folder)
        records = records_of(binding.schema)
        self.records = np.concatenate([splits.train.features for splits in records.values()])
        self.play = ReplayedPlay(plan, folder, records)
        self.play.is_honest = False
        shapes = sum_shapes(plan, binding.layout, binding.schema)
        self.server = RobbingServer(
            roster_of(plan), session_plan(plan, binding.digest), shapes, secrets.token_bytes, binding.layout.dtype,
            quorum=3,
        )  # fmt: skip
        assert self.play.federation._protection is not None
        self.play.federation._protection.server = self.server
        self.trap = Trap.of(binding.layout)
        self.initial = np.array(binding.vector, np.float64)
        self.server.claims = self.trap.set_in(self.initial) - self.initial
        self.chaos = Chaos(self.play, 1, 0.0, patient=True)

    def known(self, opened: OpenedSum) -> int:
        """Return how many records some difference in an opened sum shows to 1e-4."""
        found = self.trap.robbed(opened.body)
        errors = np.abs(found[:, None] - self.records).max(axis=2)
        return int((errors < 1e-4).any(axis=0).sum())


@pytest.fixture
def robbery(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Robbery]:
    robbing = Robbery(tmp_path, check_sums=request.param)
    yield robbing
    robbing.play.close()


@pytest.mark.parametrize("robbery", [True], indirect=True, ids=["checked"])
def test_every_site_refuses_a_claimed_sum_that_plants_trap_weights(robbery: Robbery) -> None:
    play, sites = robbery.play, list(robbery.play.sites.values())
    while not all(site.worker.standing.exit_reason for site in sites):
        assert len(robbery.server.seen) < 2
        robbery.chaos.step()
    for site in sites:
        refusal = site.worker.standing.exit_reason
        assert isinstance(refusal, SecaggError)
        assert refusal.check is Check.SUM
        assert "is not the sum of what its 4 survivors added" in refusal.message
        assert site.digest in play.states
        assert site.digest != play.digest
        assert site.worker.held.rounds_done == 0
    assert len(robbery.server.seen) == 1  # nothing was answered about the trap


@pytest.mark.parametrize("robbery", [False], indirect=True, ids=["unchecked"])
def test_without_the_check_the_next_honest_sum_gives_records_away(robbery: Robbery) -> None:
    robbery.chaos.to_the_end(10_000)
    claimed, honest = robbery.server.seen
    assert claimed.survivors == honest.survivors == (1, 2, 3, 4)
    assert honest.clipped == 0
    found = robbery.trap.robbed(honest.body)
    bins = np.digitize(robbery.records @ DIRECTION, EDGES) - 1
    alone = [
        int(place) for place in np.unique(bins[(bins >= 0) & (bins < NEURONS - 1)]) if (bins == place).sum() == 1
    ]
    assert len(alone) >= RECORDS
    for place in alone:
        np.testing.assert_allclose(found[place], robbery.records[bins == place][0], atol=1e-4)
    # Differences in the sum before, which is about an honest model, give far fewer records away.
    assert robbery.known(honest) >= len(alone) > 4 * robbery.known(claimed)
