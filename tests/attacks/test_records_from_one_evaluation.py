"""A plan that reads records out of one evaluation: what its sums would give without rounding, and what they give.

Its author chooses the ranges of five columns so that the logits of a seeded linear model are a number in a mixed
radix, one digit for each column. A bin of the histogram that holds one loss then shows that record: five columns
and the label. No site lies, nothing was trained, and no code and no weights come with the plan.
"""

import csv
import math
import secrets
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fedfair.aggregation.evaluation_sums import planned_layout
from fedfair.aggregation.loss_histogram import HistogramSpec, rounded_losses
from fedfair.aggregation.masked_encoding import header_parts, plain_totals, sum_shapes
from fedfair.aggregation.masking_terms import roster_of, session_plan
from fedfair.aggregation.requests import GlobalModel, histogram_spec
from fedfair.errors import PlanError
from fedfair.plan.schema import Plan
from fedfair.policy.plan_check import check_policy
from fedfair.policy.site_config import SitePolicy
from fedfair.policy.terms import AskedTerms
from fedfair.secagg.opened_sum import OpenedSum
from fedfair.secagg.server import Server
from fedfair.statistics.table import Purpose
from fedfair.tables.source import load_federation
from fedfair.training.assembly import flat_model
from fedfair.training.binding import plan_binding
from fedfair.training.client import TrainingClient
from fedfair.training.device import choose_device
from tests.contributions import evaluation_of
from tests.rounds.replayed_play import NAMES, ReplayedPlay, plan_of
from tests.rounds.test_replayed_run import Chaos

PEOPLE = 400
COLUMNS = {"age": (18, 99), "pressure": (80, 219), "glucose": (50, 349), "weight": (400, 1499), "chol": (90, 389)}
"""Known to all: the least and the greatest value of each column, all of them whole numbers."""

LEVELS = np.array([most - least + 1 for least, most in COLUMNS.values()])
LEAST = np.array([least for least, _ in COLUMNS.values()])

Records = NDArray[np.int64]
Losses = NDArray[np.float64]


def people() -> Records:
    """Return all records, the label last: (people, 6)."""
    draws = np.random.default_rng(11)
    values = LEAST + np.floor(draws.uniform(size=(PEOPLE, 5)) * LEVELS).astype(np.int64)
    return np.column_stack([values, draws.integers(0, 2, PEOPLE)])


class Trap:
    """The plan, and who it is made for.

    Args:
        folder: where the file of the records is written, as a stand-in for what sites have.
        bins: of the histogram.
    """

    def __init__(self, folder: Path, bins: int) -> None:
        self.records, self.bins, self.folder = people(), bins, folder
        with (folder / "records.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow([*COLUMNS, "label", "site"])
            writer.writerows([*row, NAMES[place % len(NAMES)]] for place, row in enumerate(self.records.tolist()))
        # The weights follow from the seed alone, so that the ranges may be chosen after them.
        first = self._plan({name: (float(low), float(high)) for name, (low, high) in COLUMNS.items()})
        weights, self._offset = self._logit(first)
        digits = np.cumprod([1, *LEVELS[:-1]])
        self._unit = 1.999 * abs(weights[-1]) / LEVELS.prod()
        widths = 2.0 * np.abs(weights) / (self._unit * digits)
        self._signs = np.sign(weights)
        ranges = {
            name: (float(low), float(low + width)) for name, low, width in zip(COLUMNS, LEAST, widths, strict=True)
        }
        self.plan = self._plan(ranges)
        self._start = self._offset - weights.sum()

    def _plan(self, ranges: dict[str, tuple[float, float]]) -> Plan:
        table = {
            "train": "records.csv",
            "label": "label",
            "collaborator": "site",
            "numeric": list(COLUMNS),
            "ranges": {name: list(ends) for name, ends in ranges.items()},
        }
        protection = {"most_records": PEOPLE, "clip": 1.0}
        plan = plan_of(
            2, protection, task={"data": {"csv": table}, "partition": None, "standardize": "ranges",
                                 "model": {"name": "linear", "init": "random"}}, precision="fp64", seed=3,
        )  # fmt: skip
        evaluation = plan.evaluation.model_copy(update={"bins": self.bins, "loss_range": 1.6})
        return plan.model_copy(update={"evaluation": evaluation})

    def _logit(self, plan: Plan) -> tuple[NDArray[np.float64], float]:
        """Return by how much the logit of class 1 is above that of class 0: for each column, and beside them."""
        binding = plan_binding(plan, self.folder)
        at = {entry.name: binding.vector[part] for entry, part in binding.layout.slices()}
        weights, biases = at["output.weight"].reshape(2, 5), at["output.bias"]
        return np.asarray(weights[1] - weights[0], np.float64), float(biases[1] - biases[0])

    def decoded(self, counts: NDArray[np.float64], sums: NDArray[np.float64]) -> int:
        """Return how many people are known exactly, by every bin that holds one loss."""
        held = {tuple(row) for row in self.records.tolist()}
        read = {guess for loss in sums[counts == 1.0] for guess in self._guesses(float(loss))}
        return len(read & held)

    def _guesses(self, loss: float) -> Iterator[tuple[int, ...]]:
        """Yield the record that has a loss, for each label with which there is one."""
        if loss <= 0.0:
            return
        for label, gap in ((0, math.log(math.expm1(loss))), (1, -math.log(math.expm1(loss)))):
            # Of a column with a negative weight, a digit counts downwards.
            place = round((gap - self._start) / self._unit)
            digits: list[int] = []
            for levels, sign in zip(LEVELS.tolist(), self._signs.tolist(), strict=True):
                digit = place % levels if sign > 0 else -place % levels
                digits.append(digit)
                place = (place - int(sign) * digit) // levels
            if place == 0:
                yield (*(int(low) + digit for low, digit in zip(LEAST, digits, strict=True)), label)


def everybodys(trap: Trap) -> tuple[Losses, NDArray[np.float64], NDArray[np.float64]]:
    """Return all losses before round 1, and what their bins hold in the sum of all headers."""
    plan, spec = trap.plan, None
    total, losses = None, []
    binding = plan_binding(plan, trap.folder)
    for name, splits in load_federation(plan, trap.folder).items():
        schema = splits.train.schema
        model = flat_model(plan, schema, choose_device("cpu"), trap.folder)
        task = TrainingClient(plan, name, splits, model, masked=True)
        start = GlobalModel(binding.vector, 0.0)
        losses.append(task.records.losses(start)["train"].values)
        header = evaluation_of(task, start).header
        total = header if total is None else total + header
        spec, layout = histogram_spec(plan, schema), planned_layout(plan, schema)
    assert total is not None
    assert spec is not None
    found = layout.read(total)["splits"][0]
    return np.concatenate(losses), found["counts"], found["losses"]


def unrounded(losses: Losses, spec: HistogramSpec) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return what bins would hold if sites added losses as they are."""
    places = np.searchsorted(spec.edges, losses, side="right") - 1
    sums = np.bincount(places, weights=losses, minlength=spec.bins + 1)
    return np.bincount(places, minlength=spec.bins + 1).astype(float), sums


@pytest.mark.parametrize(("bins", "lone"), [(256, 10), (4096, 300)])
def test_rounded_losses_tell_nobody_where_losses_tell_everything(tmp_path: Path, bins: int, lone: int) -> None:
    trap = Trap(tmp_path, bins)
    losses, counts, sums = everybodys(trap)
    spec = HistogramSpec(bins, 1.6)
    assert (counts == 1.0).sum() >= lone
    # The trap works: without the rounding, every bin that holds one loss is a person.
    counts_before, sums_before = unrounded(losses, spec)
    assert trap.decoded(counts_before, sums_before) == (counts_before == 1.0).sum() >= lone
    assert trap.decoded(counts, sums) == 0
    # What is summed is exactly what the rounding leaves.
    assert sums.sum() == pytest.approx(rounded_losses(losses, spec).sum(), rel=1e-12)


class WatchingServer(Server):
    """An aggregator that keeps what it opens."""

    seen: tuple[OpenedSum, ...] = ()

    def take_sum(self) -> OpenedSum:
        opened, record = super().take_sum(), self.round_record
        if record.start.purpose == "evaluation":
            self.seen += (opened,)
        return opened


def test_what_is_opened_under_masks_is_the_sum_of_rounded_losses_and_tells_nobody(tmp_path: Path) -> None:
    trap = Trap(tmp_path, SitePolicy().max_bins)
    losses, _, _ = everybodys(trap)
    binding, play = plan_binding(trap.plan, tmp_path), ReplayedPlay(trap.plan, tmp_path)
    shapes = sum_shapes(trap.plan, binding.layout, binding.schema)
    server = WatchingServer(
        roster_of(trap.plan), session_plan(trap.plan, binding.digest), shapes, secrets.token_bytes,
        binding.layout.dtype, quorum=3,
    )  # fmt: skip
    with closing(play):
        assert play.federation._run.protection is not None
        play.federation._run.protection.server = server
        chaos = Chaos(play, 1, 0.0, patient=True)
        while not server.seen:
            chaos.step()
    opened = plain_totals(server.seen[0], header_parts(trap.plan, binding.schema)[Purpose.EVALUATION])
    found = planned_layout(trap.plan, binding.schema).read(opened.header)["splits"][0]
    spec = HistogramSpec(trap.bins, 1.6)
    counts, sums = unrounded(rounded_losses(losses, spec), spec)
    assert found["counts"].tolist() == counts.tolist()
    # A mask costs each site 2^-56, whatever it adds.
    np.testing.assert_allclose(found["losses"], sums, atol=len(NAMES) * 2.0**-52)
    assert trap.decoded(found["counts"], found["losses"]) == 0 < trap.decoded(*unrounded(losses, spec))


def test_a_site_refuses_finer_bins_than_its_policy_allows_before_it_connects(tmp_path: Path) -> None:
    trap = Trap(tmp_path, 4096)
    with pytest.raises(PlanError, match=r"evaluation.bins: 4096; this site's policy allows 256") as caught:
        check_policy(AskedTerms(trap.plan), SitePolicy(max_attempts=100, min_collaborators=3), "clinic-a")
    assert "set policy.max_bins: 4096 or more" in str(caught.value)
    finer = SitePolicy(max_attempts=100, min_collaborators=3, max_bins=4096)
    with pytest.raises(PlanError, match=r"evaluation.bins: 4096, this site has 100 records; .* 8 bins for each"):
        check_policy(AskedTerms(trap.plan, records=100), finer, "clinic-a")
    check_policy(AskedTerms(trap.plan, records=512), finer, "clinic-a")
