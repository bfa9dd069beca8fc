"""Runs that end with a release audit: its counts against the records themselves, and plans that may have none."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError

from fedfair.aggregation.audit_sums import (
    ATTACKS,
    BINS,
    AuditQuestion,
    ScoredRecords,
    audit_header,
    audit_layout,
    calibrated_bins,
    check_audit,
    loss_bins,
)
from fedfair.aggregation.quantile_query import QueryStep
from fedfair.errors import RemoteProtocolError
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan
from fedfair.policy.site_config import SitePolicy
from fedfair.policy.terms import AskedTerms, terms
from fedfair.results.document import to_text
from fedfair.results.reading import parse_result
from fedfair.results.release import AuditFigures, audit_sentences
from fedfair.simulation.simulate import SimulationOutcome, simulate
from fedfair.tables.dataset import Dataset, Splits
from fedfair.tables.source import load_federation
from fedfair.training.audited_records import counted_records
from tests.plans import parsed

RECORDS, COLUMNS = 900, [f"x{place}" for place in range(24)]
CSV = {
    "train": "table.csv", "label": "ill", "label_values": [0, 1], "numeric": COLUMNS,
    "categorical": {"sex": ["f", "m"]},
}  # fmt: skip


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """People whose outcome is mostly chance, so that a model can only know it by heart; some are twins."""
    folder, draws = tmp_path_factory.mktemp("table"), np.random.default_rng(5)
    people = pd.DataFrame(draws.normal(size=(RECORDS, len(COLUMNS))).round(4), columns=COLUMNS)
    people["sex"] = draws.choice(["f", "m"], RECORDS)
    people["ill"] = (draws.random(RECORDS) < 0.5 + 0.2 * np.sign(people.x0)).astype(int)
    people.iloc[10:40] = people.iloc[0]
    people.to_csv(folder / "table.csv", index=False)
    return folder


def plan_of(rounds: int = 15, hidden: int = 64, **sections: Mapping[str, object]) -> Plan:
    about = {
        "task": {
            "data": {"csv": CSV}, "partition": {"scheme": "random"}, "standardize": "secure",
            "test_fraction": 0.4, "model": {"name": "mlp", "hidden": [hidden]},
        },
        "objective": {"worst_group_size": 1.0},
        "training": {"rounds": rounds, "batch_size": "full", "learning_rate": 1.0, "local_steps": 20},
        "secure_aggregation": {"mode": "malicious"},
        "evaluation": {"every": 1000, "release_audit": {}},
    }  # fmt: skip
    laid = {name: {**about.get(name, {}), **sections.get(name, {})} for name in about | dict(sections)}
    return parsed(**laid)


SLICED = {"every": 1000, "slices": {"bins": 2}, "release_audit": {"worst_slices": 3}}
EXCESS = {
    "worst_group_size": 1.0,
    "measure": "excess",
    "reference": {"hidden": [4], "rounds": 4, "local_steps": 3},
}


@pytest.fixture(scope="module")
def found(table: Path) -> SimulationOutcome:
    return simulate(plan_of(evaluation=SLICED), table, engine="vectorised")


def audit_of(outcome: SimulationOutcome) -> AuditFigures:
    assert outcome.result.release is not None
    assert outcome.result.release.audit is not None
    return outcome.result.release.audit


def scored(outcome: SimulationOutcome, plan: Plan, table: Path) -> pd.DataFrame:
    """Return the records of all sites that count once, with the bins of their losses."""
    parts = []
    for name, own in load_federation(plan, table).items():
        for split, dataset in (("train", own.train), ("test", own.test)):
            assert dataset is not None
            features = np.nan_to_num(np.column_stack([dataset.features, dataset.labels]))
            told = {"site": name, "split": split, "loss": outcome.losses[name][split].measured}
            parts.append(
                pd.DataFrame({**told, "label": dataset.labels, "key": [row.tobytes() for row in features]})
            )
    people = pd.concat(parts)
    people["bin"] = loss_bins(people.loss.to_numpy(), 8 * np.log(2))
    return people[~people.duplicated(["site", "key"], keep=False)]


def test_every_group_is_counted_as_in_the_records_themselves(found: SimulationOutcome, table: Path) -> None:
    audit, people = audit_of(found), scored(found, plan_of(evaluation=SLICED), table)
    assert 0 < RECORDS - len(people) <= 31
    everybody, *labels = audit.groups[:3]
    for one, own in zip(
        [everybody, *labels], [people, *(part for _, part in people.groupby("label"))], strict=True
    ):
        train, test = (own[own.split == split].bin.to_numpy() for split in ("train", "test"))
        assert (one.train, one.held_out) == (len(train), len(test))
        higher = (train[:, None] < test).mean() + 0.5 * (train[:, None] == test).mean()
        assert one.auc == pytest.approx(higher, abs=1e-12)
        allowed = [edge for edge in range(-1, BINS) if (test <= edge).mean() <= 0.01]
        assert one.tpr_at_01.estimate == pytest.approx((train <= max(allowed)).mean(), abs=1e-12)
        assert one.tpr_at_01.interval[0] <= one.tpr_at_01.estimate <= one.tpr_at_01.interval[1]
    assert [group.cells is not None for group in audit.groups] == [False] * 3 + [True] * (len(audit.groups) - 3)
    assert len(audit.groups) + audit.untold == 6


def test_a_model_that_knows_its_records_by_heart_is_found_out_and_a_small_one_is_not(
    found: SimulationOutcome, table: Path
) -> None:
    audit = audit_of(found)
    assert audit.groups[0].auc > 0.6
    assert audit.epsilon_at_least is not None
    assert audit.epsilon_at_least > 0.3
    mild = audit_of(simulate(plan_of(2, training={"local_steps": 1, "learning_rate": 0.1}), table))
    assert mild.epsilon_at_least == 0.0
    assert abs(mild.groups[0].auc - 0.5) < 0.05
    assert mild.groups[0].tpr_at_01.interval[0] < 0.01
    said = [*audit_sentences(found.result.release)]
    assert len(said) == 2
    assert f"{audit.groups[0].auc:.3f}" in said[0]
    assert f"{audit.epsilon_at_least:.2f}" in said[1]
    assert parse_result(to_text(found.result), "result.json").release == found.result.release


@pytest.mark.parametrize("sections", [{"evaluation": SLICED}, {"objective": EXCESS}], ids=["slices", "excess"])
def test_site_by_site_and_all_at_once_are_the_same(
    table: Path, sections: Mapping[str, Mapping[str, object]]
) -> None:
    plan = plan_of(2, 8, training={"precision": "fp64", "local_steps": 2}, **sections)
    loop, whole = (audit_of(simulate(plan, table, engine=engine)) for engine in ("loop", "vectorised"))
    assert loop == whole
    assert {one.attack for one in loop.groups} == ({"loss", "calibrated"} if "objective" in sections else {"loss"})


# ------------------------------------------------------------------ which records count


def dataset(rows: list[float], persons: list[str] | None = None) -> Dataset:
    features = np.array(rows)[:, None]
    columns = {} if persons is None else {"person": np.array(persons)}
    labels = np.zeros(len(rows), np.int64)
    return Dataset(features, labels, FeatureSchema((1,), 2, (0,)), columns, None if persons is None else "person")


def test_what_a_site_has_twice_does_not_count_on_whichever_sides_it_is() -> None:
    splits = Splits(dataset([1.0, 2.0, 2.0, 3.0, 4.0]), dataset([4.0, 5.0]), dataset([3.0, 6.0]))
    counted, linked = counted_records(splits)
    assert not linked
    assert {name: mask.tolist() for name, mask in counted.items()} == {
        "train": [True, False, False, False, False], "validation": [False, True], "test": [False, True],
    }  # fmt: skip


def test_a_person_counts_once() -> None:
    splits = Splits(dataset([1.0, 2.0, 3.0], ["a", "b", "a"]), test=dataset([4.0, 4.0], ["c", "c"]))
    counted, linked = counted_records(splits)
    assert linked
    assert (counted["train"].sum(), counted["train"][1], counted["test"].sum()) == (2, True, 1)


# ------------------------------------------------------------------ what is asked, and what a total may be


LAYOUT_PLAN = parsed(
    task={"test_fraction": 0.2}, evaluation=SLICED, secure_aggregation={"mode": "malicious"}, objective={
        "measure": "excess", "reference": {"hidden": [2]},
    },
)  # fmt: skip
LAYOUT = audit_layout(LAYOUT_PLAN, FeatureSchema((3,), 2, (0, 1, 2)))
QUESTION = AuditQuestion((((0, 1),), ((0, 0), (2, 1))), ((0, 30), (0, 9), (0, 50)))


def test_a_question_is_read_as_it_was_asked_and_no_other_numbers_are_one() -> None:
    for question in AuditQuestion(), QUESTION, replace(QUESTION, slices=QUESTION.slices[:1]):
        assert AuditQuestion.of(question.step, LAYOUT) == question
    right = QUESTION.step.prefixes
    wrong = [
        right[:-1], (*right, 0), (9, *right[1:]), (0, *right[1:]), (1,), (3, *right[1:]), right[1:],
        (right[0], 3, *right[2:]), (*right[:-1], 10**6), (*right[:2], 3, *right[3:]), (*right[:3], 2, *right[4:]),
    ]  # fmt: skip
    for prefixes in wrong:
        with pytest.raises(RemoteProtocolError, match="release audit asks"):
            AuditQuestion.of(QueryStep(1, prefixes), LAYOUT)
    with pytest.raises(RemoteProtocolError):
        AuditQuestion.of(QueryStep(2, ()), LAYOUT)


def test_bins_tell_small_losses_apart_and_rise_with_the_loss() -> None:
    losses = np.array([0.0, 1e-9, 1e-5, 1.25e-5, 1.6e-5, 0.7, 5.54, 5.55, 1e6])
    places = loss_bins(losses, 8 * np.log(2))
    assert (np.diff(places) >= 0).all()
    assert (places[0], places[-1], len(set(places[2:5]))) == (0, BINS - 1, 3)
    apart = calibrated_bins(np.array([0.0, 1.0, 9.0]), np.array([9.0, 1.0, 0.0]), 8 * np.log(2))
    assert (apart[0], apart[-1]) == (0, BINS - 1)
    assert 0 < apart[1] < BINS - 1


@pytest.mark.parametrize("classes", [0, 11])
def test_answers_that_are_no_few_classes_have_no_groups_of_their_own(classes: int) -> None:
    data = {"csv": {"train": "table.csv", "target": "y", "numeric": ["x"]}}
    number = {"data": data, "loss": {"name": "squared", "target_range": [0, 1]}}
    task = {"test_fraction": 0.2} | ({} if classes else number)
    plan = parsed(task=task, evaluation={"release_audit": {}})
    layout = audit_layout(plan, FeatureSchema((1,), classes, (0,), outputs=() if classes else (1,)))
    assert layout.header.length == 1 + 2 * BINS


def header_of(**changed: np.ndarray) -> np.ndarray:
    bins = dict.fromkeys(ATTACKS, np.arange(20) % BINS)
    records = ScoredRecords(bins, np.arange(20) % 2, np.ones((20, 2), bool))
    header = audit_header(LAYOUT, {"train": [records], "held_out": [records]}, 0)
    view = LAYOUT.header.read(header)
    for name, values in changed.items():
        view[name] += values
    return header


def test_a_total_that_no_records_have_is_refused() -> None:
    one = np.zeros((2, BINS))
    one[0, 3] = 1.0
    check_audit(header_of(), LAYOUT)
    for changed in (
        {"loss": one}, {"loss": 0.5 * one}, {"calibrated": one}, {"loss_by_class": one}, {"loss": -one},
        {"calibrated_by_slice": one}, {"linked": np.array(-1.0)},
    ):  # fmt: skip
        with pytest.raises(RemoteProtocolError, match="release audit is of counts"):
            check_audit(header_of(**changed), LAYOUT)
    with pytest.raises(RemoteProtocolError):
        check_audit(LAYOUT.header.zeros(), LAYOUT)


# ------------------------------------------------------------------ plans and sites


def test_plans_that_may_have_no_audit_say_why() -> None:
    noise = {"noise_multiplier": 6.0, "clip": 0.5}
    for sections, said in (
        ({"privacy": {"sample_level": noise}, "training": {"batch_size": 16}}, "counts without noise"),
        ({"task": {"test_fraction": 0.0}}, "no records are held out"),
        ({"task": {"test_fraction": 0.0, "validation_fraction": 0.2}, "training": {"output": "best"}}, "chosen"),
    ):
        with pytest.raises(ValidationError, match=said):
            plan_of(**sections)
    plan_of(task={"test_fraction": 0.0, "validation_fraction": 0.2})


def test_a_site_must_name_it() -> None:
    broken = [term for term in terms(AskedTerms(plan_of()), SitePolicy()) if "audit-sums" in term.fault]
    assert [(term.key, term.kept) for term in broken] == [("reveals", False)]
    named = SitePolicy(reveals=("update-sums", "loss-sums", "feature-sums", "audit-sums"))
    assert all(term.kept for term in terms(AskedTerms(plan_of()), named))
