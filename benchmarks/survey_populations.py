"""How often a survey before round 1 finds a wrong unit, sign or missing code, and how often it is wrong itself.

The data are such as the survey was not made for: the six tables that come with scikit-learn, dealt to sites in
several ways, and made-up populations whose sites honestly differ. `found` changes one column of one site at a
time. It counts how often that site names that column with the right kind of fault. `false-alarms` surveys the data
as they are and counts what is named. All draws are seeded, so a repetition counts the same.

Usage: python benchmarks/survey_populations.py [found | false-alarms | both] [--quick]
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from machine import report
from numpy.random import Generator, default_rng
from numpy.typing import NDArray
from sklearn import datasets

from fedfair.aggregation.survey import NumericColumn, SurveyedRecords, SurveyLayout
from fedfair.aggregation.survey_grid import ColumnGrid
from fedfair.tables.site_survey import SiteSurvey, site_survey
from fedfair.tables.survey_faults import LABEL, SurveyFault, SurveyFaultKind, survey_faults

Numbers = NDArray[np.float64]
Labels = NDArray[np.int64]
Rows = NDArray[np.int64]

FEWEST_RECORDS = 5
CHANGED_COLUMNS = 6
CODED_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Records:
    values: Numbers
    labels: Labels

    def of(self, rows: Rows) -> Records:
        return Records(self.values[rows], self.labels[rows])


# The populations. What differs between the sites is drawn once for each site, by `shift`, `factor` and `share`.


@dataclass(frozen=True, slots=True)
class Visit:
    """One site of a made-up population, of which the values of one column are drawn."""

    draws: Generator
    records: int
    is_first: bool

    def shift(self, spread: float) -> float:
        return float(self.draws.normal(0, spread))

    def factor(self, spread: float) -> float:
        return float(np.exp(self.draws.normal(0, spread)))

    def share(self, a: float, b: float) -> float:
        return float(self.draws.beta(a, b))

    def normal(self, mean: float, spread: float) -> Numbers:
        return self.draws.normal(mean, spread, self.records)

    def lognormal(self, median: float, spread: float) -> Numbers:
        return median * self.draws.lognormal(0, spread, self.records)

    def student(self, freedom: float) -> Numbers:
        return self.draws.standard_t(freedom, self.records)

    def counts(self, mean: float) -> Numbers:
        return self.draws.poisson(mean, self.records).astype(np.float64)

    def adults(self, mean: float) -> Numbers:
        return np.asarray(np.round(np.clip(self.normal(mean, 15), 18, 95)), np.float64)

    def children(self) -> Numbers:
        return np.asarray(np.round(np.clip(self.normal(9, 5), 0, 17)), np.float64)

    def years(self) -> Numbers:
        return self.draws.integers(1990 + self.draws.integers(0, 15), 2024, self.records).astype(np.float64)

    def beta(self, a: float, b: float) -> Numbers:
        return self.draws.beta(a, b, self.records)

    def points(self, most: int) -> Numbers:
        return self.draws.choice(most, self.records, p=self.draws.dirichlet([2] * most)).astype(np.float64)

    def either(self, share: float, values: Numbers | float, others: Numbers | float) -> Numbers:
        return np.where(self.draws.random(self.records) < share, values, others).astype(np.float64)


Population = Callable[[Visit], Numbers]

POPULATIONS: Mapping[str, Population] = {
    "pressure": lambda site: site.normal(120 + site.shift(8), 15 * site.factor(0.2)),
    "around zero": lambda site: site.normal(site.shift(0.5), site.factor(0.2)),
    "sodium": lambda site: site.normal(140 + site.shift(1), 3),
    "temperature": lambda site: site.normal(37 + site.shift(0.15), 0.6),
    "glucose": lambda site: site.lognormal(6 * site.factor(0.15), 0.35 * site.factor(0.2)),
    "creatinine, rounded": lambda site: np.round(site.lognormal(0.9 * site.factor(0.1), 0.4), 1),
    "wide lognormal": lambda site: site.lognormal(50 * site.factor(0.5), 1.2),
    "scale by site": lambda site: site.lognormal(10 * site.factor(0.5), 0.4),
    "very different scale by site": lambda site: site.lognormal(10 * site.factor(1), 0.4),
    "exponential": lambda site: site.draws.exponential(30 * site.factor(0.4), site.records),
    "days of stay": lambda site: np.round(site.lognormal(np.exp(1.2) * site.factor(0.4), 0.8)),
    "without a mean": lambda site: 5 + site.shift(1) + site.student(1),
    "heavy tails": lambda site: 50 + site.shift(2) + 5 * site.student(2),
    "heavy tail above": lambda site: 1 + site.factor(0.3) * site.draws.pareto(1.2, site.records),
    "mostly zeros": lambda site: site.either(site.share(18, 2), 0, site.lognormal(np.exp(2), 1)),
    "zeros by site": lambda site: site.either(site.share(2, 2), 0, site.lognormal(np.exp(2), 1)),
    "counts": lambda site: site.counts(3 * site.factor(0.3)),
    "rare counts": lambda site: site.counts(0.2 * site.factor(0.5)),
    "yes or no": lambda site: site.either(site.share(3, 3), 1, 0),
    "rarely yes": lambda site: site.either(site.share(1, 12), 1, 0),
    "yes or no by site": lambda site: site.either(site.share(0.5, 0.5), 1, 0),
    "age": lambda site: site.adults(60 + site.shift(8)),
    "age, children at one site": lambda site: site.children() if site.is_first else site.adults(60),
    "weight, children at one site": lambda site: (
        np.maximum(site.normal(32, 10), 5) if site.is_first else site.normal(78, 14)
    ),
    "one of five points": lambda site: site.points(5),
    "score to ten": lambda site: np.round(10 * site.beta(2 * site.factor(0.4), 2 * site.factor(0.4))),
    "year": lambda site: site.years(),
    "two groups": lambda site: site.either(site.share(2, 2), site.normal(20, 2), site.normal(60, 4)),
    "uniform": lambda site: site.draws.uniform(0, 1, site.records),
    "saturation": lambda site: site.beta(8 * site.factor(0.3), 2),
}

# Nothing is changed in these: the two-valued have no unit, and children among adults differ as much as by a unit.
AS_THEY_ARE_ONLY = (
    "age, children at one site",
    "weight, children at one site",
    "yes or no",
    "rarely yes",
    "yes or no by site",
)


def population(name: str, sites: int, records: int, draws: Generator) -> list[Records]:
    labels = np.arange(records) % 2
    made = (POPULATIONS[name](Visit(draws, records, at == 0)) for at in range(sites))
    return [Records(values.reshape(-1, 1), labels) for values in made]


# The tables, and how they are dealt to sites.


def tables() -> dict[str, Records]:
    def quarters(target: Numbers) -> Labels:
        return np.digitize(target, np.quantile(target, [0.25, 0.5, 0.75]))

    cancer, wine, iris = datasets.load_breast_cancer(), datasets.load_wine(), datasets.load_iris()
    diabetes, scaled = datasets.load_diabetes(scaled=False), datasets.load_diabetes()
    digits = datasets.load_digits()
    return {
        "breast cancer": Records(cancer.data, cancer.target),
        "wine": Records(wine.data, wine.target),
        "iris": Records(iris.data, iris.target),
        "diabetes": Records(diabetes.data, quarters(diabetes.target)),
        "diabetes, scaled": Records(scaled.data, quarters(scaled.target)),
        "digits": Records(digits.data[::2, ::4], digits.target[::2]),
    }


def by_chance(table: Records, sites: int, draws: Generator) -> list[Rows]:
    return np.array_split(draws.permutation(len(table.labels)), sites)


def by_size(table: Records, sites: int, draws: Generator) -> list[Rows]:
    return _cut(draws.permutation(len(table.labels)), draws.dirichlet([0.7] * sites))


def by_class(table: Records, sites: int, draws: Generator, evenness: float) -> list[Rows]:
    """Deal each class in shares of a symmetric Dirichlet distribution, whose parameter is the evenness."""
    classes = [
        _cut(draws.permutation(np.flatnonzero(table.labels == each)), draws.dirichlet([evenness] * sites))
        for each in np.unique(table.labels)
    ]
    return [np.concatenate(parts) for parts in zip(*classes, strict=True)]


def by_case_mix(table: Records, sites: int, draws: Generator) -> list[Rows]:
    """Deal in the order of the first principal component, blurred with as much noise as it varies."""
    scaled = (table.values - table.values.mean(axis=0)) / (table.values.std(axis=0) + 1e-9)
    component = scaled @ np.linalg.svd(scaled, full_matrices=False)[2][0]
    blurred = component / component.std() + draws.normal(0, 1, len(component))
    return np.array_split(np.argsort(blurred), sites)


def _cut(rows: Rows, shares: Numbers) -> list[Rows]:
    return np.split(rows, (np.cumsum(shares)[:-1] * len(rows)).astype(np.int64))


Deal = Callable[[Records, int, Generator], list[Rows]]

DEALS: Mapping[str, Deal] = {
    "by chance": by_chance,
    "by size": by_size,
    "by class": lambda table, sites, draws: by_class(table, sites, draws, 0.5),
    "nearly one class each": lambda table, sites, draws: by_class(table, sites, draws, 0.1),
    "by case mix": by_case_mix,
}
CHANGED_DEALS = (("by chance", 3), ("by class", 5), ("by case mix", 10))


def dealt(table: Records, deal: str, sites: int, draws: Generator) -> list[Records]:
    return [table.of(rows) for rows in DEALS[deal](table, sites, draws) if len(rows) >= FEWEST_RECORDS]


# The changes.


@dataclass(frozen=True, slots=True)
class Change:
    kind: SurveyFaultKind
    of: Callable[[Numbers, Generator], Numbers]


def factor(by: float) -> Change:
    return Change(SurveyFaultKind.UNIT, lambda values, _: values * by)


def code(number: float) -> Change:
    def coded(values: Numbers, draws: Generator) -> Numbers:
        return np.where(draws.random(len(values)) < CODED_SHARE, number, values)

    return Change(SurveyFaultKind.MISSING_CODE, coded)


FACTORS = {"18": 18.0156, "10": 10, "100": 100, "1000": 1000, "365": 365.25, "2.2": 2.20462262, "2.54": 2.54}
CHANGES: Mapping[str, Change] = {
    **{f"times {name}": factor(by) for name, by in FACTORS.items()},
    **{f"by {name}": factor(1 / by) for name, by in FACTORS.items()},
    "to Fahrenheit": Change(SurveyFaultKind.UNIT, lambda values, _: values * 1.8 + 32),
    "to Celsius": Change(SurveyFaultKind.UNIT, lambda values, _: (values - 32) / 1.8),
    "sign turned": Change(SurveyFaultKind.SIGN, lambda values, _: -values),
    **{f"a tenth is {number}": code(number) for number in (-9, 999, -1, 0)},
}


# The surveys.


class Survey:
    """A survey of some sites, and what each of them is told."""

    def __init__(self, sites: Sequence[Records]) -> None:
        classes = 1 + max(int(site.labels.max()) for site in sites)
        columns = range(sites[0].values.shape[1])
        numeric = tuple(NumericColumn(column_name(at), at, ColumnGrid(), 1.0) for at in columns)
        self.layout = SurveyLayout(numeric, (), classes)
        self.owns = [self.own(site) for site in sites]
        self.total = np.sum([own.header for own in self.owns], axis=0)

    def own(self, site: Records) -> SiteSurvey:
        return site_survey(SurveyedRecords(site.values, site.labels), self.layout)

    def told(self, at: int) -> tuple[SurveyFault, ...]:
        return survey_faults(self.total, self.owns[at], self.layout)

    def told_with(self, at: int, instead: Records) -> tuple[SurveyFault, ...]:
        """Return what site `at` is told where it has other records instead."""
        own = self.own(instead)
        return survey_faults(self.total - self.owns[at].header + own.header, own, self.layout)


def column_name(at: int) -> str:
    return f"column-{at:02}"


@dataclass
class Found:
    """How often each change was made, and how often it was named with the right kind."""

    made: int
    right: Counter[str]

    def figures(self) -> dict[str, object]:
        shares = {name: f"{100 * self.right[name] / self.made:.0f} %" for name in CHANGES}
        return {"each_change_made": self.made, "found": shares}


def found(federations: Iterator[tuple[list[Records], Generator]]) -> dict[str, object]:
    counted = Found(0, Counter())
    for sites, draws in federations:
        survey = Survey(sites)
        at = int(draws.integers(len(sites)))
        site = sites[at]
        columns = site.values.shape[1]
        for column in draws.choice(columns, min(columns, CHANGED_COLUMNS), replace=False):
            if len(np.unique(site.values[:, column])) <= 2:
                continue
            counted.made += 1
            for name, change in CHANGES.items():
                values = site.values.copy()
                values[:, column] = np.round(change.of(values[:, column], draws), 12)
                told = survey.told_with(at, Records(values, site.labels))
                right = any(fault.column == column_name(column) and fault.kind is change.kind for fault in told)
                counted.right[name] += right
    return counted.figures()


def changed_tables(held: Mapping[str, Records]) -> Iterator[tuple[list[Records], Generator]]:
    for place, table in enumerate(held.values()):
        for deal, sites in CHANGED_DEALS:
            draws = default_rng([place, sites, 7])
            yield dealt(table, deal, sites, draws), draws


def changed_populations(names: Sequence[str], times: int) -> Iterator[tuple[list[Records], Generator]]:
    for place, name in enumerate(names):
        for time in range(times):
            draws = default_rng([place, time, 11])
            yield population(name, sites=10, records=100, draws=draws), draws


@dataclass
class Alarms:
    """How many federations and columns of sites were surveyed, and what was named in them."""

    federations: int
    site_columns: int
    named: Counter[str]

    def figures(self) -> dict[str, object]:
        return {
            "federations": self.federations,
            "site_columns": self.site_columns,
            "named": self.named.total(),
            "of_these": dict(self.named),
        }


def alarms(federations: Iterator[tuple[str, list[Records]]]) -> Alarms:
    counted = Alarms(0, 0, Counter())
    for name, sites in federations:
        survey = Survey(sites)
        counted.federations += 1
        counted.site_columns += len(sites) * sites[0].values.shape[1]
        for at in range(len(sites)):
            for fault in survey.told(at):
                where = "label" if fault.column == LABEL else "column"
                counted.named[f"{name}: {where} {fault.kind.value}"] += 1
    return counted


def honest_tables(held: Mapping[str, Records]) -> Iterator[tuple[str, list[Records]]]:
    for place, (name, table) in enumerate(held.items()):
        for number, deal in enumerate(DEALS):
            for sites in (3, 10):
                parts = dealt(table, deal, sites, default_rng([place, number, sites]))
                if len(parts) > 1:
                    yield f"{name}, {deal}", parts


def honest_populations(names: Sequence[str], times: int) -> Iterator[tuple[str, list[Records]]]:
    for place, name in enumerate(names):
        for records in (12, 60, 400):
            for sites in (3, 10):
                for time in range(times):
                    yield name, population(name, sites, records, default_rng([place, records, sites, time]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("found", "false-alarms", "both"), nargs="?", default="both")
    parser.add_argument("--quick", action="store_true", help="one table and two populations, each drawn once")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    held, names = tables(), list(POPULATIONS)
    if arguments.quick:
        held, names = {"iris": held["iris"]}, ["pressure", "glucose"]
    figures: dict[str, object] = {"tables": list(held), "populations": len(names)}
    if arguments.what in {"found", "both"}:
        changed = [name for name in names if name not in AS_THEY_ARE_ONLY]
        figures["found_in_tables"] = found(changed_tables(held))
        figures["found_in_populations"] = found(changed_populations(changed, 1 if arguments.quick else 3))
    if arguments.what in {"false-alarms", "both"}:
        times = 1 if arguments.quick else 6
        figures["false_alarms_in_tables"] = alarms(honest_tables(held)).figures()
        figures["false_alarms_in_populations"] = alarms(honest_populations(names, times)).figures()
    report("survey_populations", **figures)


if __name__ == "__main__":
    main()
