"""What one record does to all that a site sends, in units of the noise on it: no more than is accounted for.

Two sites differ in one record, chosen to do the most. With the same draws their contributions differ by that
record's part alone (no sampling: q = 1); with other draws one site's contributions differ by noise alone. The
length of the first, measured by the deviations of the second, is what a Gaussian release of noise multiplier sigma
allows to be 1 / sigma. That is the whole contribution, not the step inside it: a number that nobody added noise
to, or a scale that is applied twice, shows here. How many records a site has is public, and left out.
"""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats

from fedfair.aggregation.requests import FeatureScaling, GlobalModel, histogram_spec
from fedfair.ids import ParticipantId, RoundNumber
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan
from fedfair.privacy.releases import Record, ReleaseLog
from fedfair.tables.dataset import Dataset, Splits
from fedfair.training.assembly import flat_model
from fedfair.training.client import TrainingClient
from fedfair.training.dp_sgd import RecordProtection
from tests import bc10
from tests.contributions import evaluation_of, standardisation_of
from tests.oracles.header_places import HEAD, split_header

NAME, FIRST = ParticipantId("site-0"), RoundNumber(1)
SCHEMA = FeatureSchema((2,), 2, (0, 1), units=(4.0, 4.0))
OTHERS = 3
SIGMA, RATE = 1.5, 0.25
DRAWS = 250
NUMBERS = NDArray[np.float64]
FURTHEST = 8 * math.log(2) - 1e-6
"""A loss just below the end of the histogram, and far from the lower edge of its bin."""


def plan(noise: float, **changes: object) -> Plan:
    stated = {"learning_rate": RATE, "threshold_learning_rate": RATE}
    objective = {"worst_group_size": 0.2, "tradeoff": 0.1, "smoothing": {"name": "zang", "gamma": 0.05}}
    values = bc10.plan(1, objective=objective, **stated).model_dump()
    ranges = {"age": [0, 3.99], "weight": [0, 3.99]}
    table = {"label": "died", "numeric": ["age", "weight"], "ranges": ranges}
    values["task"] |= {"data": {"csv": table}, "standardize": "secure"}
    values["evaluation"]["bins"] = 8
    asked = {f"{kind}noise_multiplier": noise for kind in ("", "evaluation_", "standardisation_")}
    return Plan.model_validate(values | {"privacy": {"sample_level": {"clip": 0.7, **asked, **changes}}})


class Site:
    """A few records at the origin, and perhaps one of class 1 that stands out; its draws follow from `seed`."""

    def __init__(self, given: Plan, features: list[float], record: Record, *, there: bool) -> None:
        self.seed = 0
        rows = np.array([[0.0, 0.0]] * OTHERS + [features] * there)
        records = Dataset(rows, np.array([0] * OTHERS + [1] * there), SCHEMA)
        flat = flat_model(given, SCHEMA, torch.device("cpu"), Path())
        self.task = TrainingClient(
            given, NAME, Splits(records), flat, protection=RecordProtection(self._entropy, record)
        )
        self.task.apply_scaling(FeatureScaling(np.zeros(2), np.ones(2)))
        assert [entry.name for entry in self.task.layout.entries] == ["output.bias", "output.weight"]

    def _entropy(self, *words: str | int) -> int:
        return 2 * self.seed + (words[0] == "batch")


def separating(gap: float) -> GlobalModel:
    """Return the model that tells (1, 0) from the origin: its logits of class 0 and 1 are so far apart there."""
    return GlobalModel(np.array([0.0, 0.0, gap / 2, 0.0, -gap / 2, 0.0]), 0.1)


def trained(task: TrainingClient, given: Plan) -> NUMBERS:
    """Return the noised sum that a round's change is made of, and kappa times that of the threshold."""
    sent = task.rounds.contribution(separating(20.0), FIRST, 1)
    # The weight is how many records there are, and so is the batch that the sum was divided by.
    assert sent.header[0] == task.training_records
    asked = given.privacy.sample_level
    assert asked is not None
    return np.append(sent.body, sent.header[1] * asked.threshold_scale) / RATE


def evaluated(task: TrainingClient, given: Plan) -> NUMBERS:
    """Return everything of the evaluation's header but numbers of records; sums of bins as offsets from edges."""
    spec = histogram_spec(given, SCHEMA)
    model = separating(math.log(math.expm1(FURTHEST)))
    blocks, matrices = split_header(evaluation_of(task, model).header, spec, 2)
    assert matrices is not None
    assert not blocks[1:].any()
    assert not matrices[1:].any()
    records, correct, smoothed = blocks[0][:HEAD]
    # How many are correct is told by the matrix, and not a second time.
    assert (records, correct) == (task.training_records, 0.0)
    counts, sums = np.split(blocks[0][HEAD:], 2)
    return np.concatenate([[smoothed], counts, sums - spec.edges * counts, matrices[0].ravel()])


def standardised(task: TrainingClient, given: Plan) -> NUMBERS:
    """Return everything of the standardisation's header but the number of records."""
    del given
    sent = standardisation_of(task).header
    assert sent[0] == task.training_records
    return sent[1:]


Sent = Callable[[TrainingClient, Plan], NUMBERS]


def power(sent: Sent, given: Plan, features: list[float]) -> float:
    """Return the length of a record's part, in deviations of the noise on each number."""
    log = ReleaseLog()
    site, another = (Site(given, features, log.record, there=there) for there in (False, True))
    part = sent(another.task, given) - sent(site.task, given)
    noise = []
    for site.seed in range(1, DRAWS + 1):
        noise.append(sent(site.task, given).copy())
    # One release each, in which every record takes part.
    assert [(release.sampling_rate, release.steps) for release in log.releases] == [(1.0, 1)] * (DRAWS + 2)
    deviation = np.std(noise, axis=0)
    # What carries no noise must not move at all; the rounding of a float64 sum is no movement.
    still = deviation < 1e-12
    assert np.abs(part[still]).max(initial=0.0) < 1e-12
    return float(np.linalg.norm(part[~still] / deviation[~still]))


SLACK = math.sqrt(stats.chi2.isf(1 - 1e-7, DRAWS - 1) / DRAWS)
"""Least ratio of a deviation that is measured over so many draws, but for one in 10^7."""


@pytest.mark.parametrize("broken", [1.0, 0.5])
@pytest.mark.parametrize(
    ("sent", "made", "features"),
    [
        (trained, {}, [3.9, 3.9]), (trained, {"threshold_scale": 4.0}, [3.9, 3.9]),
        (trained, {"clipping": "joint"}, [3.9, 3.9]), (evaluated, {}, [1.0, 0.0]),
        (standardised, {}, [3.99, 3.99]),
    ],
)  # fmt: skip
def test_a_record_shows_in_what_a_site_sends_by_no_more_than_its_noise_allows_and_that_much_is_reached(
    sent: Sent, made: dict[str, object], features: list[float], broken: float
) -> None:
    found = power(sent, plan(broken * SIGMA, **made), features)
    if broken < 1.0:
        # Noise of half the size is noticed.
        assert found > 1.0 / (SIGMA * SLACK)
        return
    assert found <= 1.0 / (SIGMA * SLACK)
    assert found > 0.9 / SIGMA


@pytest.mark.parametrize("feature", [1e3, 1e308])
def test_a_loss_beyond_the_histogram_or_no_number_shows_no_more_than_the_largest(feature: float) -> None:
    found = power(evaluated, plan(SIGMA), [feature, 0.0])
    # In the open bin there is no offset: three of four parts are left, of norm 1 in a sensitivity of 2.
    assert 0.9 * math.sqrt(3) / 2 / SIGMA < found <= math.sqrt(3) / 2 / (SIGMA * SLACK)


def test_every_stream_of_a_run_is_asked_for_in_words_of_its_own() -> None:
    """Noise that is drawn twice from one stream can be taken off; noise that follows from a batch tells of it."""
    given, asked = plan(SIGMA), []

    def entropy(*words: str | int) -> int:
        asked.append(words)
        return len(asked)

    splits = Splits(Dataset(np.zeros((2, 2)), np.array([0, 1]), SCHEMA))
    model = flat_model(given, SCHEMA, torch.device("cpu"), Path())
    task = TrainingClient(given, NAME, splits, model, protection=RecordProtection(entropy, ReleaseLog().record))
    task.apply_scaling(FeatureScaling(np.zeros(2), np.ones(2)))
    for attempt in (1, 2):
        standardisation_of(task, attempt)
        for number in (RoundNumber(1), RoundNumber(2)):
            task.rounds.contribution(separating(1.0), number, attempt)
            evaluation_of(task, separating(1.0), number, attempt)
    # Two standardisations, four evaluations, and four rounds with noise and batches.
    assert len(set(asked)) == len(asked) == 2 + 4 + 2 * 4
