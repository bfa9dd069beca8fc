"""The scores of a site's records: what is computed, and what a site adds where its model gives no numbers."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fedfair.aggregation.evaluation_sums import planned_layout
from fedfair.aggregation.requests import GlobalModel
from fedfair.aggregation.running_sum import Totals
from fedfair.aggregation.score_histogram import rounded_scores
from fedfair.errors import TrainingError
from fedfair.plan.schema import Plan
from fedfair.run.training_run import TrainingRun
from fedfair.tables.source import load_federation
from fedfair.training.assembly import flat_model
from fedfair.training.client import TrainingClient
from tests import plans
from tests.contributions import evaluation_of


def plan_of(data: str = "breast-cancer", *, scores: bool = True) -> Plan:
    return plans.parsed(
        task={"data": data, "partition": {"scheme": "random"}, "test_fraction": 0.2},
        training={"precision": "fp64"},
        evaluation={"scores": scores, "bins": 8},
    )


def client_of(plan: Plan, folder: Path, *, masked: bool) -> tuple[TrainingClient, GlobalModel]:
    sites = load_federation(plan, folder)
    name, splits = next(iter(sites.items()))
    model = flat_model(plan, splits.train.schema, torch.device("cpu"), folder)
    return TrainingClient(plan, name, splits, model, masked=masked), GlobalModel(model.vector().copy(), 0.5)


@pytest.mark.parametrize(("data", "columns"), [("breast-cancer", 1), ("digits", 10)])
def test_a_score_is_the_probability_that_a_loss_is_made_of(tmp_path: Path, data: str, columns: int) -> None:
    client, model = client_of(plan_of(data), tmp_path, masked=False)
    vector = np.random.default_rng(1).normal(0.0, 1e-3, len(model.vector))
    found = client.records.losses(GlobalModel(vector, 0.5))["train"]
    assert found.scores.shape == (len(found.values), columns)
    rows = np.arange(len(found.labels))
    taken = found.scores[rows, found.labels] if columns > 1 else np.abs(1 - found.labels - found.scores[:, 0])
    np.testing.assert_allclose(-np.log(taken), found.values, rtol=1e-9, atol=1e-12)
    none = client_of(plan_of(data, scores=False), tmp_path, masked=False)[0]
    assert none.records.losses(model)["train"].scores.size == 0


def test_under_masks_records_without_numbers_are_counted_with_the_score_zero(tmp_path: Path) -> None:
    client, model = client_of(plan_of(), tmp_path, masked=True)
    unsound = GlobalModel(np.full_like(model.vector, np.nan), 0.5)
    added = evaluation_of(client, unsound)
    schema = load_federation(plan_of(), tmp_path)[client.participant].train.schema
    sums = planned_layout(plan_of(), schema).read(added.header)
    assert np.isfinite(added.header).all()
    records = sums["splits"]["records"]
    assert added.replaced == records.sum()
    block = sums["scores"][:, 0]
    assert (block["positives"][:, 0] + block["negatives"][:, 0]).tolist() == records.tolist()
    # A score of 0 counts as the middle of the first bin.
    assert block["scores"].sum() == pytest.approx(records.sum() * float(rounded_scores(np.zeros(1), 1)[0]))
    assert block["squares"] == pytest.approx(block["positives"].sum(axis=1), abs=1e-3)


def test_in_the_clear_a_site_without_numbers_sends_nothing(tmp_path: Path) -> None:
    client, model = client_of(plan_of(), tmp_path, masked=False)
    with pytest.raises(TrainingError, match="nothing was sent"):
        evaluation_of(client, GlobalModel(np.full_like(model.vector, np.nan), 0.5))


@pytest.mark.parametrize("replaced", [0, 1])
def test_decisions_are_told_of_where_every_score_is_one(tmp_path: Path, replaced: int) -> None:
    client, model = client_of(plan_of(), tmp_path, masked=False)
    schema = load_federation(plan_of(), tmp_path)[client.participant].train.schema
    run = TrainingRun(plan_of(), client.layout, schema, model.vector)
    header = evaluation_of(client, model).header
    run.apply_aggregate(Totals(header, np.zeros(0), 1, replaced=replaced, replacing=replaced))
    assert [*run.result().decision_curves] == ([] if replaced else ["test"])
    assert run.result().rankings
