"""Who asks for statistics in order to learn of one person, and what he gets: no more than epsilon allows."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from fedfair.aggregation.column_statistics import (
    StatisticsLayout,
    statistics_counts,
    statistics_layout,
    statistics_summary,
)
from fedfair.aggregation.survey import SurveyedRecords
from fedfair.errors import PlanError
from fedfair.plan.schema import Plan
from fedfair.privacy.accounting import epsilon
from fedfair.privacy.budget import Budget, Limit
from fedfair.privacy.entries import LedgerEntry, Origin
from fedfair.privacy.shared_noise import SharedNoise, multiplier_epsilon
from fedfair.results.column_statistics import statistics_fields
from fedfair.results.writing import Setting
from tests.statistics_plans import NAMES, stated

DELTA = 1e-5
SITES = len(NAMES)


def wide(columns: int, **statistics: object) -> Plan:
    """Return a plan that asks for a mean and a histogram of so many columns of numbers."""
    names = [f"c{place}" for place in range(columns)]
    asked = {name: {"bins": [0, 1], "mean": True, "between": [0, 1]} for name in names}
    table = {"numeric": names, "categorical": {}, "missing": "mean"}
    return Plan.model_validate(stated(table=table, columns=asked, **statistics))


def noise_of(plan: Plan) -> tuple[StatisticsLayout, SharedNoise]:
    layout = statistics_layout(plan)
    assert layout.noise is not None
    return layout, layout.noise


def opened(
    layout: StatisticsLayout, noise: SharedNoise, records: SurveyedRecords, seed: int
) -> NDArray[np.float64]:
    """Return a sum over all sites, of which one has the records."""
    header = statistics_counts(records, layout)
    for each in range(SITES):
        header = header + noise.share(len(header), SITES * seed + each)
    return header


def test_a_thousand_columns_cost_one_epsilon_and_tell_nothing_of_forty_records() -> None:
    plan = wide(1000)
    layout, noise = noise_of(plan)
    assert noise.parts == 3001
    assert multiplier_epsilon(noise.multiplier, DELTA) <= 1.0
    # Everybody's values are alike, and yet nothing of 40 records is beyond what the noise does by itself.
    records = SurveyedRecords(np.full((40, 1000), 0.5), np.zeros(40))
    header = opened(layout, noise, records, 3)
    found = statistics_fields(plan, statistics_summary(header, SITES, layout), Setting.DEPLOYMENT)
    shown = [row for row in found.rows if row.value is not None]
    assert len(shown) <= len(found.rows) * 0.01 + 5 * math.sqrt(len(found.rows) * 0.01)


def test_more_columns_than_can_be_noised_exactly_are_refused_before_anybody_adds_anything() -> None:
    with pytest.raises(PlanError, match="more noise than can be drawn exactly") as caught:
        statistics_layout(wide(1000, epsilon=0.01))
    assert caught.value.remedy == "ask for fewer columns, or raise epsilon"


def test_a_bin_around_one_person_tells_whether_he_is_there_no_better_than_epsilon_allows() -> None:
    """An adversary that knows all others guesses by a threshold: his hits are within e^epsilon of false alarms."""
    columns = {"age": {"bins": [100, 101]}}
    layout, noise = noise_of(Plan.model_validate(stated(columns=columns)))
    draws, asked = 4000, 1.0
    others = np.array([[6.0, 40.0, 1, 0, 0, 1, 0, 0]] * 50)
    him = np.array([[6.0, 100.5, 1, 0, 0, 1, 0, 0]])
    cell = layout.histograms[0].cells.index("100 to 101")
    without, with_him = (
        statistics_counts(SurveyedRecords(rows, np.zeros(len(rows))), layout)
        for rows in (others, np.vstack([others, him]))
    )
    drawn = noise.share(2 * draws * SITES, 11).reshape(2, draws, SITES).sum(axis=2)
    place = 1 + cell
    guesses = (without[place] + drawn[0], with_him[place] + drawn[1])
    for threshold in noise.scale * np.array([-20, -5, 0, 0.5, 5, 20]):
        false_alarms, hits = (float(np.mean(each > threshold)) for each in guesses)
        off = 5 * math.sqrt(0.25 / draws)
        assert hits <= math.exp(asked) * false_alarms + DELTA + (1 + math.exp(asked)) * off
    # He does move the sum: by one record, in a cell that no other is in.
    assert (with_him - without)[place] == noise.scale


def test_two_studies_that_differ_by_one_person_cost_two_epsilons_and_a_budget_ends_the_third() -> None:
    """A filter leaves one person out of the second study: the difference has the noise of both sums."""
    noise = noise_of(Plan.model_validate(stated()))[1]
    limit = Limit("the budget of this site", Budget(1.8, DELTA), lambda _: True, "")
    answered = 0
    for study in range(5):
        if not limit.allows(noise.release):
            break
        origin = Origin("clinic-a", "wards", f"sha256:{study}", None)
        limit.count(LedgerEntry("2031-05-04T10:11:12+00:00", origin, noise.release))
        answered += 1
    assert answered == 2
    assert epsilon([noise.release] * 2, DELTA) <= 1.8 < epsilon([noise.release] * 3, DELTA)


def test_colluders_who_take_their_own_noise_off_leave_the_noise_that_was_promised() -> None:
    values = stated()
    plan = Plan.model_validate({**values, "secure_aggregation": {"colluders": 2}})
    noise = noise_of(plan)[1]
    assert noise.shares == SITES - 2
    honest = sum(noise.share(50_000, seed) for seed in range(noise.shares))
    alone = noise_of(Plan.model_validate(values))[1]
    everybody = SITES * alone.share_variance / alone.scale**2
    off = 5 * everybody * math.sqrt(2 / 50_000)
    assert float(np.var(honest / noise.scale)) >= everybody - off
