"""A site's columns against all other sites': what is named, and what is not."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from fedfair.aggregation.survey import NumericColumn, SurveyedCategory, SurveyedRecords, SurveyLayout
from fedfair.aggregation.survey_grid import ColumnGrid
from fedfair.errors import RemoteProtocolError
from fedfair.tables.site_survey import SiteSurvey, site_survey
from fedfair.tables.survey_faults import SurveyFault, SurveyFaultKind, is_chance, survey_faults
from fedfair.tables.unit_faults import UNIT_PAIRS

LAYOUT = SurveyLayout(
    (NumericColumn("value", 0, ColumnGrid(), 1.0),), (SurveyedCategory("sex", ("F", "M", "other"), (1, 2, 3)),), 2
)
N = 300


def site(
    values: NDArray[np.float64], sexes: NDArray[np.int64] | None = None, labels: NDArray[np.int64] | None = None
) -> SiteSurvey:
    places = np.arange(len(values)) % 2 if sexes is None else sexes
    features = np.column_stack([values, np.eye(3)[places]])
    classes = np.arange(len(values)) % 3 % 2 if labels is None else labels
    return site_survey(SurveyedRecords(features, classes), LAYOUT)


def drawn(seed: int, median: float = 6.0) -> NDArray[np.float64]:
    return median * np.random.default_rng(seed).lognormal(0.0, 0.3, N)


def found(own: SiteSurvey, *others: SiteSurvey) -> tuple[SurveyFault, ...]:
    held = others or tuple(site(drawn(seed)) for seed in (1, 2, 3))
    return survey_faults(own.header + sum(other.header for other in held), own, LAYOUT)


def kinds(own: SiteSurvey, *others: SiteSurvey) -> list[SurveyFaultKind]:
    return [fault.kind for fault in found(own, *others)]


@pytest.mark.parametrize("pair", UNIT_PAIRS, ids=lambda pair: f"{pair.factor:g}")
@pytest.mark.parametrize("larger", [True, False])
def test_each_known_unit_is_named(pair: object, larger: bool) -> None:
    from fedfair.tables.unit_faults import UnitPair

    assert isinstance(pair, UnitPair)
    values = drawn(0)
    converted = values * pair.factor + pair.offset if larger else (values - pair.offset) / pair.factor
    (fault,) = found(site(converted))
    assert fault.kind is SurveyFaultKind.UNIT
    assert "the median here is" in fault.words
    assert f"with the {'larger' if larger else 'smaller'} numbers here" in fault.words


@pytest.mark.parametrize("shift", [-1.0, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_a_population_whose_mean_differs_by_a_spread_is_no_fault(shift: float, seed: int) -> None:
    normal = [site(np.random.default_rng([seed, place]).normal(120, 15, N)) for place in range(3)]
    own = site(np.random.default_rng([seed, 9]).normal(120 + 15 * shift, 15, N))
    assert found(own, *normal) == ()


@pytest.mark.parametrize("code", [0.0, -9.0, 999.0])
def test_a_number_that_stands_for_a_missing_value_is_named(code: float) -> None:
    values = np.where(np.arange(N) % 10 == 0, code, drawn(0))
    (fault,) = found(site(values))
    assert fault.kind is SurveyFaultKind.MISSING_CODE
    assert f"is {code:g} in 10% of the values here" in fault.words
    assert "missing_values_of" in fault.words


def zero_one(share: float) -> NDArray[np.float64]:
    return (np.arange(N) < share * N).astype(np.float64)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("mean", [0.2, 0.9, 3.0, 8.0])
def test_counts_of_few_records_have_no_code_for_missing(mean: float, seed: int) -> None:
    """A zero or a nine that others do not have is no code where it is one of many like it, or chance."""
    sites = [site(np.random.default_rng([seed, place]).poisson(mean, 60).astype(np.float64)) for place in range(3)]
    for place, own in enumerate(sites):
        others = sites[:place] + sites[place + 1 :]
        assert found(own, *others) == ()


@pytest.mark.parametrize("seed", range(3))
def test_children_among_adults_are_another_population_and_no_fault(seed: int) -> None:
    draws = np.random.default_rng(seed)
    ages, weights = draws.integers(0, 18, N).astype(np.float64), draws.normal(32, 10, N).clip(5)
    adults = [np.random.default_rng([seed, place]) for place in (1, 2)]
    assert found(site(ages), *(site(np.round(each.normal(60, 15, N).clip(18, 95))) for each in adults)) == ()
    assert found(site(weights), *(site(each.normal(78, 14, N)) for each in adults)) == ()


def test_what_another_mix_of_classes_explains_is_no_unit() -> None:
    """The second class has three times the values of the first, everywhere."""

    def mixed(seed: int, second: float) -> SiteSurvey:
        labels = (np.arange(N) < second * N).astype(np.int64)
        return site(drawn(seed) * np.where(labels, 3.0, 1.0), labels=labels)

    others = [mixed(seed, 0.15) for seed in (1, 2)]
    assert SurveyFaultKind.UNIT not in kinds(mixed(0, 0.95), *others)
    assert kinds(site(40 * drawn(0), labels=(np.arange(N) < 0.15 * N) * 1), *others) == [SurveyFaultKind.UNIT]


@pytest.mark.parametrize("zeros", [0.0, 0.6, 0.9])
@pytest.mark.parametrize("factor", [18.0156, 1 / 1000])
def test_a_unit_is_found_beside_many_zeros(zeros: float, factor: float) -> None:
    def mostly_zero(seed: int, by: float = 1.0) -> SiteSurvey:
        values = np.concatenate([drawn(seed), drawn(seed + 10), drawn(seed + 20)])
        return site(np.where(np.arange(len(values)) % 10 < 10 * zeros, 0.0, by * values))

    others = [mostly_zero(seed) for seed in (1, 2, 3)]
    assert kinds(mostly_zero(0), *others) == []
    assert kinds(mostly_zero(0, factor), *others) == [SurveyFaultKind.UNIT]


def test_another_unit_is_told_with_medians_also_around_zero() -> None:
    assert found(site(drawn(0))) == ()
    (fault,) = found(site(18.0156 * drawn(0)))
    assert fault.column == "value"
    assert "mg/dl against mmol/l of glucose, with the larger numbers here" in fault.words
    assert "to within 19%" in fault.words

    def around(seed: int) -> NDArray[np.float64]:
        return np.random.default_rng(seed).normal(0.0, 1.0, N)

    others = [site(around(seed)) for seed in (1, 2, 3)]
    assert kinds(site(around(0) * 18.0156), *others) == [SurveyFaultKind.UNIT]
    assert kinds(site(around(0) * 2.0), *others) == []
    assert kinds(site(around(0) + 1.0), *others) == []


def test_two_columns_that_are_exchanged_are_both_named() -> None:
    layout = SurveyLayout(tuple(NumericColumn(name, n, ColumnGrid(), 1.0) for n, name in enumerate("abc")), (), 2)

    def three(seed: int, order: tuple[int, ...] = (0, 1, 2)) -> SiteSurvey:
        columns = np.column_stack([drawn(seed), drawn(seed + 10, 70.0), drawn(seed + 20)])
        return site_survey(SurveyedRecords(columns[:, order], np.arange(N) % 2), layout)

    others = three(1).header + three(2).header
    assert survey_faults(others + three(0).header, three(0), layout) == ()
    own = three(0, (0, 2, 1))
    faults = survey_faults(others + own.header, own, layout)
    # The first column is like the third, so that each could be the partner of the second; it is where it belongs.
    assert [(fault.column, fault.kind) for fault in faults] == [
        ("b", SurveyFaultKind.EXCHANGED),
        ("c", SurveyFaultKind.EXCHANGED),
    ]
    assert "the values here that 'c' has elsewhere" in faults[0].words


def test_codings_and_classes_the_other_way_round_are_named() -> None:
    others = [site(zero_one(0.9)) for _ in range(3)]
    assert kinds(site(zero_one(0.1)), *others) == [SurveyFaultKind.SWAPPED]
    assert kinds(site(zero_one(0.9) + 1), *others) == [SurveyFaultKind.SHIFTED]
    assert kinds(site(zero_one(0.7)), *others) == []
    rare = [site(drawn(seed), labels=(np.arange(N) % 10 == 0).astype(np.int64)) for seed in (1, 2)]
    assert kinds(site(drawn(0), labels=(np.arange(N) % 10 != 0).astype(np.int64)), *rare) == [
        SurveyFaultKind.SWAPPED
    ]
    assert kinds(site(drawn(0), labels=np.zeros(N, np.int64)), *rare) == [SurveyFaultKind.CONSTANT]
    assert kinds(site(-drawn(0))) == [SurveyFaultKind.SIGN]
    below = [site(-drawn(seed)) for seed in (1, 2, 3)]
    assert kinds(site(drawn(0)), *below) == [SurveyFaultKind.SIGN]
    # A temperature below zero in one country is another climate.
    cold, warm = (np.random.default_rng(0).normal(mean, 3.0, N) for mean in (-10.0, 25.0))
    assert kinds(site(cold), site(warm), site(warm + 1)) == []
    assert kinds(site(zero_one(0.4)), site(zero_one(0.4) + 1), site(zero_one(0.5) + 1)) == [
        SurveyFaultKind.SHIFTED
    ]


def test_categories_in_another_spelling_or_missing_here_are_named() -> None:
    assert kinds(site(np.full(N, 6.5))) == [SurveyFaultKind.CONSTANT]
    assert kinds(site(np.full(N, np.nan))) == [SurveyFaultKind.ABSENT]
    # Ten records of a column that elsewhere is mostly missing may have none by chance.
    others = [site(np.where(np.arange(N) % 5 == 0, drawn(seed), np.nan)) for seed in (1, 2)]
    assert kinds(site(np.full(10, np.nan)), *others) == []
    assert kinds(site(drawn(0), np.full(N, 2))) == [SurveyFaultKind.OTHER_VALUES]
    assert kinds(site(drawn(0), np.zeros(N, np.int64))) == [SurveyFaultKind.CONSTANT]
    mostly = [site(drawn(seed), (np.arange(N) % 10 == 0).astype(np.int64)) for seed in (1, 2)]
    assert kinds(site(drawn(0), (np.arange(N) % 10 != 0).astype(np.int64)), *mostly) == [SurveyFaultKind.SWAPPED]

    def wards(respelt: int | None) -> SiteSurvey:
        places = np.where(np.arange(N) % 10 == 0, 1, 0)
        return site(drawn(0), places if respelt is None else np.where(places == respelt, 2, places))

    others = [wards(None), wards(None)]
    (fault,) = found(wards(1), *others)
    assert fault.kind is SurveyFaultKind.OTHER_VALUES
    assert "10% of the records here have a value that the plan does not name, elsewhere 0%" in fault.words
    assert "M is in no record here, elsewhere in 10%" in fault.words


@pytest.mark.parametrize("own_value", [True, False])
def test_a_missing_category_is_no_unknown_value(own_value: bool) -> None:
    """Whether the plan counts missing as a value of its own or as other, it is not a value that nobody named."""
    values = ("F", "M", "other", "missing") if own_value else ("F", "M", "other")
    column = SurveyedCategory("sex", values, tuple(range(len(values))))
    layout = SurveyLayout((), (column,), 2)

    def gone(part: float, strange: float) -> SiteSurvey:
        order = np.arange(N) / N
        places = np.arange(N) % 2
        places = np.where(order < part + strange, 2, places)
        places = np.where(order < part, len(values) - 1, places)
        unknown = 0 if own_value else int(np.sum(order < part))
        return site_survey(SurveyedRecords(np.eye(len(values))[places], np.arange(N) % 2, (unknown,)), layout)

    def told(own: SiteSurvey, other: SiteSurvey) -> list[SurveyFaultKind]:
        return [fault.kind for fault in survey_faults(own.header + other.header, own, layout)]

    assert told(gone(0.0, 0.0), gone(0.4, 0.0)) == []
    assert told(gone(0.4, 0.3), gone(0.4, 0.0)) == [SurveyFaultKind.OTHER_VALUES]


@pytest.mark.parametrize(
    ("here", "there"), [((3, 30), (0, 60)), ((9, 12), (5, 24)), ((1, 1), (0, 5)), ((40, 90), (0, 9))]
)
def test_fishers_test_is_the_count_of_all_odder_tables(here: tuple[int, int], there: tuple[int, int]) -> None:
    held, cases, everybody = here[0] + there[0], here[1], here[1] + there[1]
    tables = [
        math.comb(held, times) * math.comb(everybody - held, cases - times)
        for times in range(here[0], min(held, cases) + 1)
    ]
    odds = sum(tables) / math.comb(everybody, cases)
    assert is_chance(here, there, odds * 0.999)
    assert not is_chance(here, there, odds * 1.001)


def test_a_site_that_was_away_compares_itself_with_all_sites() -> None:
    own, others = site(18.0156 * drawn(0)), [site(drawn(seed)) for seed in (1, 2, 3)]
    total = sum(other.header for other in others)
    (fault,) = survey_faults(np.asarray(total), own, LAYOUT, is_member=False)
    assert fault.kind is SurveyFaultKind.UNIT
    with pytest.raises(RemoteProtocolError, match="than this site alone has added"):
        survey_faults(np.asarray(total), own, LAYOUT)
