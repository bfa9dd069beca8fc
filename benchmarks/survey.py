"""The cost of a survey before round 1, and how often it finds one wrong unit in real data.

`cost` plays whole federations over real sockets with mutual TLS, all of them in one process. It reads the survey's
bytes and seconds from the aggregator's own metrics; the other sums of the run are beside it. `faults` needs the
data sets in the folder FEDFAIR_DATA. It gives one site at a time a wrong unit in one column, and counts how often
that is named. It also counts what is named in the data as they are.

Usage: python benchmarks/survey.py cost [--sites 5 50] [--columns 20]
       python benchmarks/survey.py faults
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import yaml
from machine import report
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fedfair.aggregation.survey import NumericColumn, SurveyedRecords, SurveyLayout
from fedfair.aggregation.survey_grid import ColumnGrid
from fedfair.cli.loopback import prepare
from fedfair.tables.site_survey import SiteSurvey, site_survey
from fedfair.tables.survey_faults import SurveyFaultKind, survey_faults
from tests.interop.federation_kit import Federation, metrics, play
from tests.plans import small_plan

RECORDS = 1000
CHANGED_SITES = 25
FEWEST_STAYS = 12
# fmt: off
HEART = [
    "age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak", "slope", "ca", "thal",
    "num",
]
EICU = [
    "urine", "wbc", "temperature", "respiratoryrate", "sodium", "heartrate", "meanbp", "ph", "hematocrit",
    "creatinine", "albumin", "pao2", "pco2", "bun", "glucose", "bilirubin", "fio2", "age", "admissionheight",
    "admissionweight",
]
# fmt: on
ACS = ["AGEP", "SCHL", "OCCP", "POBP", "WKHP", "SEX", "RAC1P"]

Site = tuple[NDArray[np.float64], NDArray[np.int64]]
Sites = Mapping[str, Site]
Change = Callable[[NDArray[np.float64]], NDArray[np.float64]]

FACTORS = {"18": (18.0156,), "10 to 1000": (10.0, 100.0, 1000.0), "2.54 and 2.2": (2.54, 2.2046)}


def cost(sites: int, columns: int) -> dict[str, object]:
    names = tuple(f"site-{number:02}" for number in range(1, sites + 1))
    numeric = [f"column-{number:02}" for number in range(columns)]
    plan = small_plan(rounds=2, protection={"mode": "malicious"}, names=names)
    plan["task"] = {
        "data": {"csv": {"label": "died", "numeric": numeric}},
        "standardize": "secure",
        "survey": True,
        "model": {"name": "linear", "init": "zeros"},
    }
    with tempfile.TemporaryDirectory() as folder:
        workspace = prepare(Path(folder), plan)
        for number, name in enumerate(names):
            file = Path(folder) / f"{name}.yaml"
            site = yaml.safe_load(file.read_text())
            terms = {"reveals": ["update-sums", "loss-sums", "feature-sums", "survey-sums"]}
            file.write_text(yaml.safe_dump({**site, "data": {"train": f"{name}.csv"}, "policy": terms}))
            draws = np.random.default_rng(number)
            table = pd.DataFrame(draws.lognormal(2.0, 0.5, (RECORDS, columns)), columns=numeric)
            table["died"] = draws.integers(0, 2, RECORDS)
            table.to_csv(Path(folder) / f"{name}.csv", index=False)

        async def everybody(federation: Federation) -> None:
            await federation.everybody()

        play(workspace, everybody)
        found: dict[str, dict[str, float]] = {}
        for line in metrics(workspace):
            taken = {key: float(str(line[key])) for key in ("seconds", "bytes_in", "bytes_out", "contributors")}
            found.setdefault(
                str(line["purpose"]),
                {
                    "seconds": taken["seconds"],
                    "bytes_up_of_a_site": taken["bytes_in"] / taken["contributors"],
                    "bytes_down_of_a_site": taken["bytes_out"] / taken["contributors"],
                },
            )
        return {"sites": sites, "columns": columns, "first_sum_of": found}


def heart(folder: Path) -> Sites:
    found = {}
    for name in ("cleveland", "hungarian", "switzerland", "va"):
        table = pd.read_csv(folder / "heart" / f"processed.{name}.data", names=HEART, na_values="?")
        labels = np.asarray(table["num"] > 0, np.int64)
        found[name] = table[HEART[:-1]].to_numpy(np.float64), labels
    return found


def eicu(folder: Path) -> Sites:
    table = pd.read_csv(folder / "eicu_demo" / "eicu_demo_mortality.csv.gz", low_memory=False)
    numbers = table[EICU].apply(pd.to_numeric, errors="coerce")
    numbers = numbers.where(numbers != -1.0)
    held = table.groupby("hospitalid").indices
    return {
        str(name): (numbers.to_numpy(np.float64)[rows], table["died"].to_numpy(np.int64)[rows])
        for name, rows in held.items()
        if len(rows) >= FEWEST_STAYS
    }


def acs(folder: Path) -> Sites:
    table = pd.read_csv(folder / "acs_income" / "acs_income_2018_feda4fair.csv.gz")
    found = {}
    for name, persons in table.groupby("STATE"):
        part = persons.sample(min(2000, len(persons)), random_state=0)
        found[str(name)] = part[ACS].to_numpy(np.float64), part["PINCP_gt_50k"].to_numpy(np.int64)
    return found


def faults(sites: Sites, names: list[str]) -> dict[str, object]:
    layout = SurveyLayout(tuple(NumericColumn(name, n, ColumnGrid(), 1.0) for n, name in enumerate(names)), (), 2)

    def taken(site: Site) -> SiteSurvey:
        return site_survey(SurveyedRecords(*site), layout)

    owns = {name: taken(site) for name, site in sites.items()}
    total = np.sum([own.header for own in owns.values()], axis=0)
    as_they_are = [
        f"{name}: {fault.sentence}" for name, own in owns.items() for fault in survey_faults(total, own, layout)
    ]
    figures: dict[str, object] = {}
    for label, change in changes().items():
        tried = named = 0
        for name, (values, labels) in list(sites.items())[:CHANGED_SITES]:
            for place, column in enumerate(names):
                known = values[~np.isnan(values[:, place]), place]
                if len(known) < 10 or len(np.unique(known)) <= 2:
                    continue
                changed = values.copy()
                changed[:, place] = np.round(change(values[:, place]), 12)
                own = taken((changed, labels))
                found = survey_faults(total - owns[name].header + own.header, own, layout)
                tried += 1
                named += any(fault.column == column and fault.kind is SurveyFaultKind.UNIT for fault in found)
        figures[label] = {"named": named, "tried": tried}
    return {
        "sites": len(sites),
        "site_columns": len(sites) * len(names),
        "found_in_the_data_as_they_are": as_they_are,
        "found_with_a_wrong_unit": figures,
    }


def changes() -> dict[str, Change]:
    made: dict[str, Change] = {"Fahrenheit": lambda values: values * 1.8 + 32}
    for factors in FACTORS.values():
        for factor in factors:
            made[f"times {factor:g}"] = lambda values, by=factor: values * by  # type: ignore[misc]
            made[f"by {factor:g}"] = lambda values, by=factor: values / by  # type: ignore[misc]
    return made


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("cost", "faults"))
    parser.add_argument("--sites", type=int, nargs="+", default=[5, 50])
    parser.add_argument("--columns", type=int, default=20)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.what == "cost":
        report("survey", cost=[cost(sites, arguments.columns) for sites in arguments.sites])
    else:
        data = Path(os.environ["FEDFAIR_DATA"])
        held = {"heart": (heart(data), HEART[:-1]), "eicu": (eicu(data), EICU), "acs": (acs(data), ACS)}
        report("survey", **{name: faults(*found) for name, found in held.items()})
