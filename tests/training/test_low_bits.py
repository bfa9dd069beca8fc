"""What the low bits of a site's own update tell of a record: nothing on a grid, much with float noise.

A plan with `mode: off`, one step from zeros, and a category that one record alone has: without that record the sum
of its column's gradients is exactly 0. Float noise alone is a product fl(s z) of a float z and the deviation s,
and many a float is none (Mironov 2012). So a value that is none gives the record away, and never wrongly.
"""

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats

from fedfair.aggregation.dp_histogram import EVALUATION_ROUNDED, EVALUATION_SENSITIVITY, evaluation_units
from fedfair.aggregation.feature_moments import noise_deviation
from fedfair.aggregation.loss_histogram import HistogramSpec
from fedfair.aggregation.requests import FeatureScaling, GlobalModel, SumRequest, histogram_spec
from fedfair.aggregation.sum_kinds import sum_specs
from fedfair.ids import ParticipantId, RoundNumber
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan
from fedfair.privacy.accounting import epsilon
from fedfair.privacy.grid import noise_grid
from fedfair.privacy.releases import GaussianRelease, ReleaseLog
from fedfair.simulation.clients import LoopClients
from fedfair.simulation.vectorised.private_clients import PrivateClients
from fedfair.statistics.table import Purpose
from fedfair.tables.dataset import Dataset, Splits
from fedfair.training.assembly import flat_model, mechanism_of, objective_of
from fedfair.training.client import TrainingClient
from fedfair.training.dp_sgd import RecordProtection
from tests import plans
from tests.contributions import evaluation_of, standardisation_of
from tests.oracles.header_places import HEAD, split_header

NAME, FIRST = ParticipantId("site-0"), RoundNumber(1)
CLASSES, RECORDS, RUNS = 8, 64, 160
SCHEMA = FeatureSchema((2,), CLASSES, (0, 1), units=(4.0, 4.0))
DEVIATION = 0.75
"""sigma C: its significand, 1.5, leaves out a third of the floats between 1.5 and 2."""

FLOATS = NDArray[np.floating]
WIDTHS = {"fp32": np.float32, "fp64": np.float64}


def plan(precision: str) -> Plan:
    ranges = {"age": [0, 3.99], "rare": [0, 3.99]}
    return plans.parsed(
        [NAME],
        task={
            "data": {"csv": {"label": "died", "numeric": ["age", "rare"], "ranges": ranges}},
            "model": {"name": "linear", "init": "zeros"}, "standardize": "secure",
        },
        training={
            "algorithm": "fedavg", "precision": precision, "device": "cpu", "batch_size": "full",
            "learning_rate": 1.0,
        },
        evaluation={"bins": 8},
        secure_aggregation={"mode": "off"},
        privacy={"sample_level": {"noise_multiplier": 1.0, "clip": DEVIATION}},
    )  # fmt: skip


class Site:
    """A site with the rare record or without it, and the same records in the vectorised simulator."""

    def __init__(self, precision: str, *, there: bool) -> None:
        self.plan, self.seed = plan(precision), 0
        features = np.zeros((RECORDS, 2))
        features[:, 0] = np.linspace(0.0, 1.0, RECORDS)
        features[0, 1] = 3.5 * there
        splits = Splits(Dataset(features, np.arange(RECORDS) % CLASSES, SCHEMA))
        self.model = flat_model(self.plan, SCHEMA, torch.device("cpu"), Path())
        protection = RecordProtection(lambda *words: 2 * self.seed + (words[0] == "batch"), ReleaseLog().record)
        self.task = TrainingClient(self.plan, NAME, splits, self.model, protection=protection)
        loop = LoopClients({NAME: self.task})
        self.cohort = PrivateClients(self.plan, {NAME: splits}, self.model, {NAME: protection}, loop)
        self.start = GlobalModel(self.model.vector(), 0.5)
        self.cohort.apply_scaling(FeatureScaling(np.zeros(2), np.ones(2)))

    def sent(self, way: str) -> FLOATS:
        """Return everything of a round's own update, which is that of the noised sum, as its receiver sees it."""
        if way == "task":
            body = self.task.rounds.contribution(self.start, FIRST, 1).body
        else:
            spec = sum_specs(self.plan, self.model.layout, SCHEMA)[Purpose.TRAINING]
            body = self.cohort.totals(SumRequest(Purpose.TRAINING, FIRST, 1, spec), self.start).body
        # The weight and the size of the batch are both the number of records, a power of two; the rate is 1.
        return -body.copy()

    def runs(self, way: str, count: int = RUNS) -> FLOATS:
        made = []
        for self.seed in range(1, count + 1):
            made.append(self.sent(way))
        return np.array(made)

    def column(self, sent: FLOATS) -> FLOATS:
        """Return the entries that are 0 before noise without the rare record, (runs, classes)."""
        place = {entry.name: place for entry, place in self.model.layout.slices()}["output.weight"]
        return sent[:, place].reshape(len(sent), CLASSES, 2)[:, :, 1]


def no_float_noise(values: FLOATS, deviation: float) -> NDArray[np.bool_]:
    """Return which values are no product of the deviation and a float, rounded: what noise alone cannot be."""
    factor = values.dtype.type(deviation)
    possible = np.zeros(values.shape, np.bool_)
    for towards in (-np.inf, np.inf):
        # The quotient is off by less than two steps of the last place.
        tried = values / factor
        for _ in range(3):
            possible |= factor * tried == values
            tried = np.nextafter(tried, values.dtype.type(towards))
    return ~possible


@pytest.mark.parametrize("precision", ["fp32", "fp64"])
def test_the_attack_finds_a_record_behind_float_noise_more_often_than_epsilon_allows(precision: str) -> None:
    width, source = WIDTHS[precision], np.random.default_rng(5)
    noise = source.standard_normal((RUNS, CLASSES), dtype=width) * width(DEVIATION)
    # The gradients of a record of class 0 in a column at zeros: errors 1/8 - 1 and 1/8, clipped to 0.75 together.
    gradient = np.full(CLASSES, 1 / 8)
    gradient[0] -= 1.0
    gradient *= DEVIATION / np.linalg.norm(gradient)
    absent, present = (
        no_float_noise(sums + noise, DEVIATION).any(axis=1) for sums in (width(0), gradient.astype(width))
    )
    stated = epsilon([GaussianRelease("training", 1.0, 1.0, 1)], 1e-5)
    assert stated == pytest.approx(4.38, abs=0.01)
    # Whatever epsilon is, an event that never happens without the record may happen with probability delta.
    assert not absent.any()
    assert present.mean() > 0.43


@pytest.mark.parametrize("way", ["task", "vectorised"])
@pytest.mark.parametrize("precision", ["fp32", "fp64"])
def test_the_low_bits_of_an_update_tell_nothing_of_a_record(precision: str, way: str) -> None:
    sites = [Site(precision, there=there) for there in (False, True)]
    grid = mechanism_of(sites[0].plan, sites[0].plan.privacy.sample_level).grid(  # type: ignore[arg-type]
        len(sites[0].start.vector), sites[0].model.flat.dtype
    )
    sent = [site.runs(way) for site in sites]
    for values in sent:
        # Whole cells everywhere: nothing that noise alone could not make, in any run.
        cells = values.astype(np.float64) / grid.cell
        assert np.array_equal(cells, np.rint(cells))
        assert not no_float_noise(values, grid.cell).any()
    # And the low bits of these whole numbers are uniform, with the record and without it: chi squared with 15
    # degrees of freedom over 1280 numbers, outside with a probability of 1e-7 a side; the seeds are fixed.
    tables = []
    for site, values in zip(sites, sent, strict=True):
        low = np.mod(site.column(values).astype(np.float64) / grid.cell, 16).astype(int)
        tables.append(np.bincount(low.ravel(), minlength=16))
        expected = low.size / 16
        found = ((tables[-1] - expected) ** 2 / expected).sum()
        assert stats.chi2.isf(1 - 1e-7, 15) < found < stats.chi2.isf(1e-7, 15)
    assert stats.chi2_contingency(np.array(tables)).pvalue > 1e-7


@pytest.mark.parametrize("precision", ["fp32", "fp64"])
def test_an_evaluation_lies_on_its_grid_with_and_without_the_record(precision: str) -> None:
    multiplier = 20.0
    grid = noise_grid(multiplier, EVALUATION_SENSITIVITY, EVALUATION_ROUNDED, largest=1.0)
    for there in (False, True):
        site = Site(precision, there=there)
        spec: HistogramSpec = histogram_spec(site.plan, SCHEMA)
        objective = objective_of(site.plan)
        greatest = float(objective.per_sample(torch.tensor([spec.loss_range], dtype=torch.float64), 0.5))
        units, bins = evaluation_units(spec, CLASSES, greatest), spec.bins + 1
        for site.seed in range(20):
            blocks, matrices = split_header(evaluation_of(site.task, site.start).header, spec, CLASSES)
            assert matrices is not None
            for cells in (matrices[0].ravel() / grid.cell, blocks[0][HEAD : HEAD + bins] / grid.cell):
                assert np.array_equal(cells, np.rint(cells))
            # The other numbers are their whole cells in another unit: a function of the cell, rounded once.
            for place in (2, HEAD + 2 * bins - 1):
                cell = np.rint(blocks[0][place] / units[place] / grid.cell)
                assert blocks[0][place] == units[place] * (cell * grid.cell)
            assert not blocks[0][HEAD + bins : -1].any()


def test_standardisations_lie_on_their_grid_with_and_without_the_rare_record() -> None:
    """Otherwise the attack had nothing to find."""
    site, other = Site("fp64", there=False), Site("fp64", there=True)
    moved = site.column(site.runs("task", 1)) - other.column(other.runs("task", 1))
    assert 0.5 * DEVIATION < np.linalg.norm(moved) <= DEVIATION * 1.01
    grid = noise_grid(20.0, noise_deviation(6, 1.0), 4, largest=1.0)
    for there in (False, True):
        site = Site("fp32", there=there)
        for site.seed in range(20):
            header = standardisation_of(site.task).header
            assert header[0] == RECORDS
            cells = header[1:] / grid.cell
            assert np.array_equal(cells, np.rint(cells))
