"""The sums before and after one person's withdrawal: what their difference shows, and that they are not both made.

Nobody lies: two sites evaluate one model exactly, once with a person and once without. The curious reader has both
opened sums and nothing else.
"""

from pathlib import Path

import numpy as np
import pytest
import yaml
from numpy.typing import NDArray

from collaborator.withdrawn.recording import record_withdrawal
from collaborator.withdrawn.run_lineage import RunLineage
from fedfair.aggregation.loss_histogram import HistogramSpec, block_layout, loss_block, rounded_losses
from fedfair.ids import ParticipantId
from fedfair.plan.loading import load_plan
from fedfair.policy.plan_check import PolicyError
from fedfair.policy.site_config import load_site_config
from fedfair.tables.dataset import Dataset, Splits
from fedfair.tables.source import read_site_records
from fedfair.withdrawal.lineage import CountedRun
from tests.withdrawal.test_withdraw_command import NOW
from tests.withdrawal.withdrawal_kit import written

SPEC = HistogramSpec(bins=64, loss_range=4.0)
ROWS = [f"p {row},{20 + row % 71},{row % 2}" for row in range(120)]
EVERYBODY = [f"p {row}" for row in range(120)]


def read(folder: Path) -> Splits:
    plan = load_plan(folder / "plan/plan.yaml")
    own = load_site_config(folder / "collaborator.yaml")
    return read_site_records(plan, own, ParticipantId("clinic-a"), folder).splits


def losses(records: Dataset) -> NDArray[np.float64]:
    """Return the logistic loss of a model that both runs evaluate."""
    scores = 0.07 * np.asarray(records.features, np.float64)[:, 0] - 3.5
    return np.logaddexp(0.0, np.where(records.labels == 1, -scores, scores))


def opened(folder: Path) -> NDArray[np.float64]:
    """Return the opened sum over this site and another, whose records are always the same."""
    other = np.linspace(0.0, 3.9, 500)
    of_both = (losses(read(folder).train), other)
    return np.sum([loss_block(each, np.ones(len(each), np.bool_), 0.0, SPEC) for each in of_both], axis=0)


def run(folder: Path, name: str) -> None:
    """Note a run as a site does before its first answer, after what it checks before it connects."""
    plan = load_plan(folder / "plan/plan.yaml")
    lineage = RunLineage(load_site_config(folder / "collaborator.yaml"))
    lineage.check(plan)
    noted = CountedRun(name, "sha256:" + "0" * 64, "heart", 0, NOW.isoformat(), withdrawn=lineage.withdrawn_now())
    lineage.note(noted, read(folder).owners)


def withdrawn(folder: Path, *persons: str) -> None:
    record_withdrawal(folder / "collaborator.yaml", folder / "plan/plan.yaml", persons, "", NOW)


def together(folder: Path, least: int) -> None:
    path = folder / "collaborator.yaml"
    path.write_text(
        yaml.safe_dump(yaml.safe_load(path.read_text()) | {"policy": {"withdrawals": {"together": least}}})
    )


@pytest.mark.parametrize("person", [3, 64, 119])
def test_two_exact_sums_show_the_loss_of_the_one_person_who_withdrew(tmp_path: Path, person: int) -> None:
    written(tmp_path, *ROWS)
    RunLineage(load_site_config(tmp_path / "collaborator.yaml")).make_key()
    (alone,) = rounded_losses(losses(read(tmp_path).train)[[person]], SPEC)
    before = opened(tmp_path)
    run(tmp_path, "run-1")
    withdrawn(tmp_path, EVERYBODY[person])

    # What the term is there for: where a site allows it, the reader has the bin, and with it the loss.
    difference = block_layout(SPEC).read(before - opened(tmp_path))
    (found,) = np.flatnonzero(difference["counts"])
    assert SPEC.edges[found] <= alone < SPEC.edges[found + 1]
    assert difference["losses"][found] == pytest.approx(alone, abs=1e-12)

    with pytest.raises(PolicyError, match="counted 1 persons who have withdrawn since"):
        run(tmp_path, "run-2")
    together(tmp_path, 1)
    run(tmp_path, "run-2")


def test_twenty_who_withdraw_together_are_a_sum_and_the_next_one_waits_again(tmp_path: Path) -> None:
    written(tmp_path, *ROWS)
    RunLineage(load_site_config(tmp_path / "collaborator.yaml")).make_key()
    before = opened(tmp_path)
    run(tmp_path, "run-1")
    for count in (1, 10, 19):
        withdrawn(tmp_path, *EVERYBODY[:count])
        with pytest.raises(PolicyError, match=f"counted {count} persons"):
            run(tmp_path, "refused")
    withdrawn(tmp_path, *EVERYBODY[:20])
    run(tmp_path, "run-2")
    difference = block_layout(SPEC).read(before - opened(tmp_path))
    assert difference["counts"].sum() == 20
    withdrawn(tmp_path, EVERYBODY[50])
    with pytest.raises(PolicyError, match="counted 1 persons"):
        run(tmp_path, "run-3")


def test_a_record_of_withdrawals_that_is_an_older_one_stops_the_start(tmp_path: Path) -> None:
    written(tmp_path, *ROWS)
    RunLineage(load_site_config(tmp_path / "collaborator.yaml")).make_key()
    withdrawn(tmp_path, *EVERYBODY[:20])
    record = tmp_path / "withdrawals/clinic-a.jsonl"
    older = record.read_bytes()
    withdrawn(tmp_path, *EVERYBODY[20:45])
    run(tmp_path, "run-1")
    record.write_bytes(older)
    with pytest.raises(
        Exception, match="is older than at the run of 2030-01-31, which knew of 45 persons"
    ) as caught:
        run(tmp_path, "run-2")
    assert "newest backup" in str(getattr(caught.value, "remedy", ""))
