"""Robbing the federation: a claimed sum that plants trap weights is refused; without the check it robs a record.

Source: Fowl et al. 2022 ("Robbing the Fed"), Boenisch et al. 2023 ("When the curious abandon honesty"). All
rows of the first layer are one direction w, its biases cut the projections w x into bins, and the next layer takes
every neuron alike. Then the gradients of two neighbouring neurons differ by the records of one bin alone: g x in
the row, g in the bias. Their quotient is the record, whatever the records of all sites add, masked or not.

The trap is a claimed sum of the first round, within the clip times the weights, so nothing but its tag is wrong.
In the broken variant every site approved a plan without the check, and the aggregator robs the next honest sum.

Or the trap is what the plan begins with, which every site approves as a digest. Then the first honest sum is
robbed, whatever is checked of it. So a site begins with the weights of a seed, of a run of its own, or of its own
list, and with no others.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from numpy.typing import NDArray
from safetensors.torch import save_file

from fedfair.aggregation.masked_encoding import sum_shapes
from fedfair.aggregation.masking_terms import roster_of, session_plan
from fedfair.aggregation.model_layout import Layout
from fedfair.ids import ParticipantId
from fedfair.plan.digest import beginning_digest, format_digest, stated
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.loading import load_plan
from fedfair.plan.schema import Plan
from fedfair.policy.plan_check import PolicyError, check_policy
from fedfair.policy.site_config import SitePolicy
from fedfair.policy.terms import AskedTerms
from fedfair.secagg.checks import Check, SecaggError
from fedfair.secagg.fixedpoint import decode_body, packed_body
from fedfair.secagg.opened_sum import OpenedSum, body_code
from fedfair.secagg.server import Server
from fedfair.tables.dataset import Dataset, Splits
from fedfair.training.binding import plan_binding
from fedfair.training.freezing import freeze_from
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

    def take_sum(self) -> OpenedSum:
        opened, told, record = super().take_sum(), self.announcement, self.round_record
        start = record.start
        if told is None or start.purpose != "training":
            return opened
        # The product makes the body into the model, so this aggregator keeps its own copy.
        self.seen += (replace(opened, body=opened.body.copy()),)
        if self.claims is not None:
            code = body_code(self._terms, start, self._sums._shapes["training"])
            assert np.abs(self.claims).max() < start.clips[0]
            units = np.rint(opened.weight * self.claims / code.step(start.clips[0])).astype(np.int64)
            words = units.astype(np.int32).view(np.uint32)
            self._outcome.announcement = replace(told, vector=packed_body(words, self._terms.ring_bits))
            self.claims = None
            return replace(opened, body=decode_body(words, code, self._sums._opening.body_dtype))
        return opened


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

    def __init__(self, folder: Path, *, plan: Plan, claims: bool = False) -> None:
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
        assert self.play.federation._run.protection is not None
        self.play.federation._run.protection.server = self.server
        self.trap = Trap.of(binding.layout)
        self.initial = np.array(binding.vector, np.float64)
        self.server.claims = self.trap.set_in(self.initial) - self.initial if claims else None
        self.chaos = Chaos(self.play, 1, 0.0, patient=True)

    def known(self, opened: OpenedSum) -> int:
        """Return how many records some difference in an opened sum shows to 1e-4."""
        errors = np.abs(self.trap.robbed(opened.body)[:, None] - self.records).max(axis=2)
        return int((errors < 1e-4).any(axis=0).sum())


@pytest.fixture
def robbery(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Robbery]:
    robbing = Robbery(tmp_path, plan=robbing_plan(check_sums=request.param), claims=True)
    yield robbing
    robbing.play.close()


@pytest.mark.parametrize("robbery", [True], indirect=True, ids=["checked"])
def test_every_site_refuses_a_claimed_sum_that_plants_trap_weights(robbery: Robbery) -> None:
    play, sites = robbery.play, list(robbery.play.sites.values())
    while not all(site.worker.sums.exit_reason for site in sites):
        assert len(robbery.server.seen) < 2
        robbery.chaos.step()
    for site in sites:
        refusal = site.worker.sums.exit_reason
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


ALLOWING = SitePolicy(max_attempts=100, min_collaborators=3)
"""A policy that has nothing against the plan but what it begins with."""


@pytest.fixture
def trapped(tmp_path: Path) -> Plan:
    """Return a plan that begins with the trap, as `fedfair plan freeze --from` writes it."""
    plan_file, source = tmp_path / "trapped" / "plan" / "plan.yaml", tmp_path / "trap.safetensors"
    plan_file.parent.mkdir(parents=True)
    plan_file.write_text(yaml.safe_dump(stated(robbing_plan(check_sums=True))))
    binding = plan_binding(load_plan(plan_file), plan_file.parent)
    vector = Trap.of(binding.layout).set_in(np.array(binding.vector, np.float64))
    save_file(
        {name: torch.from_numpy(tensor) for name, tensor in binding.layout.unflatten(vector).items()}, source
    )
    freeze_from(plan_file, source)
    return load_plan(plan_file)


def test_trap_weights_of_the_plan_give_records_away_in_its_first_sum_where_a_site_allows_them(
    trapped: Plan, tmp_path: Path
) -> None:
    initial = trapped.training.initial
    assert initial is not None
    digest = format_digest(beginning_digest(initial))
    check_policy(AskedTerms(trapped), ALLOWING.model_copy(update={"initial_weights": ("seed", digest)}), NAMES[0])
    folder = tmp_path / "played"
    folder.mkdir()
    robbing = Robbery(folder, plan=trapped)
    try:
        robbing.chaos.to_the_end(10_000)
        first = robbing.server.seen[0]
        assert first.clipped == 0
        bins = np.digitize(robbing.records @ DIRECTION, EDGES) - 1
        counts = np.unique(bins[(bins >= 0) & (bins < NEURONS - 1)], return_counts=True)[1]
        # Every check of the sum was kept, and every record that is alone in its bin is read from it.
        assert robbing.known(first) >= (counts == 1).sum() >= RECORDS
    finally:
        robbing.play.close()


def test_a_site_refuses_trap_weights_of_the_plan_unless_its_policy_names_them(trapped: Plan) -> None:
    initial = trapped.training.initial
    assert initial is not None
    digest = format_digest(beginning_digest(initial))
    with pytest.raises(PolicyError) as refused:
        check_policy(AskedTerms(trapped), ALLOWING, NAMES[0])
    assert [term.key for term in refused.value.broken] == ["initial_weights"]
    assert "can copy single records into the sum" in refused.value.message
    assert f"add {digest} to policy.initial_weights in collaborator.yaml" in refused.value.message
    # The weights of another file have another digest; so have these under another scaling or threshold.
    for other in ({"weights": "sha256:" + "1" * 64}, {"threshold": 3.0}, {"scaling": "sha256:" + "2" * 64}):
        assert beginning_digest(initial.model_copy(update=other)) != beginning_digest(initial)
