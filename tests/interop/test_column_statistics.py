"""Statistics over real sockets: one masked sum and the end, what a ledger holds, and who refuses."""

import asyncio
import json
from pathlib import Path

import pytest
import yaml

from collaborator.ledger import Ledger, witness_of
from collaborator.preparation import PreparedSite, make_ready
from fedfair.aggregation.column_statistics import statistics_noise
from fedfair.cli.loopback import Workspace, prepare
from fedfair.errors import PrivacyError
from fedfair.plan.loading import load_plan
from fedfair.policy.plan_check import PolicyError
from fedfair.privacy.releases import SharedNoiseRelease
from fedfair.results.document import to_json
from fedfair.results.reading import read_result
from fedfair.simulation.statistics import simulate_statistics
from fedfair.statistics.table import Purpose
from tests.interop.federation_kit import Federation, metrics, play, states_agree
from tests.interop.processes import Started, ended
from tests.site_reading import read_site
from tests.statistics_plans import NAMES, RECORDS, stated, write_tables

BUDGET = {"epsilon": 1.2, "delta": 1e-5}
"""Two sums of epsilon 1 cost 1.45 together."""


def federation(folder: Path, budget: object = BUDGET, **statistics: object) -> Workspace:
    """Return a federation of clinics whose plan asks for statistics, each with a budget."""
    workspace = prepare(folder, stated(**statistics), {name: f"{name}.csv" for name in NAMES})
    write_tables(folder)
    for name in NAMES:
        over(folder / f"{name}.yaml", budget=budget)
    return workspace


def over(file: Path, **keys: object) -> None:
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), **keys}))


def ledger(folder: Path, name: str) -> list[object]:
    file = folder / "state" / f"{name}.ledger.sqlite"
    return [entry.release for entry in Ledger(file, witness_of(folder / "state", name)).look()]


def test_a_deployment_without_noise_tells_what_its_simulation_does_and_ends_after_one_sum(tmp_path: Path) -> None:
    workspace = federation(tmp_path, None, epsilon=None, by="sex")
    ending = play(workspace, Federation.everybody)
    assert (ending.state.value, ending.words) == ("finished", "the statistics are summed")
    states_agree(workspace)
    assert not list((tmp_path / "save").glob("*.safetensors"))
    assert not list((tmp_path / "runs").rglob("*.safetensors"))
    assert [line["purpose"] for line in metrics(workspace)] == [Purpose.COLUMN_STATISTICS.value]
    told = to_json(simulate_statistics(load_plan(workspace.plan), tmp_path))["statistics"]
    found = json.loads(workspace.result.read_text())["statistics"]
    assert found == json.loads(json.dumps(told))
    means = [row["value"] for row in found["rows"] if row["statistic"] == "mean" and row["group"] != "other"]
    assert None not in means
    assert len(means) == 4


def test_under_noise_each_ledger_has_one_line_and_a_second_study_of_the_records_ends_at_the_budget(
    tmp_path: Path,
) -> None:
    workspace = federation(tmp_path / "first")
    assert play(workspace, Federation.everybody).state.value == "finished"
    found = read_result(workspace.result).statistics
    assert found is not None
    assert found.honest_shares == len(NAMES)
    held = {name: ledger(workspace.folder, name) for name in NAMES}
    assert all([type(release) for release in releases] == [SharedNoiseRelease] for releases in held.values())
    # A start that comes back to hear how it ended is no second question.
    make_ready(site(workspace, "clinic-a"))
    # The same question as another plan: the ledger is over all plans, and a second epsilon is too much.
    again = after(tmp_path / "second", workspace, delta=2e-5)
    with pytest.raises(PrivacyError, match="the budget of this site allows no further statistics release"):
        make_ready(site(again, "clinic-a"))
    assert ledger(workspace.folder, "clinic-a") == held["clinic-a"]


def test_a_sum_without_one_site_has_the_noise_that_three_add_which_is_as_much_as_was_promised(
    tmp_path: Path,
) -> None:
    workspace = federation(tmp_path, fewest=3)
    assert play(workspace, three).state.value == "finished"
    found, noise = read_result(workspace.result).statistics, statistics_noise(load_plan(workspace.plan))
    assert found is not None
    assert noise is not None
    assert (found.honest_shares, found.noise_deviation) == (3, noise.deviation(3))
    assert [len(ledger(tmp_path, name)) for name in NAMES[:3]] == [1, 1, 1]


async def three(playing: Federation) -> None:
    """Let three of the four sites take part."""
    sites = [asyncio.create_task(playing.take_part(name)) for name in NAMES[:3]]
    await playing.begin_with(*NAMES[:3])
    await asyncio.wait({playing.serving})
    for each in sites:
        each.cancel()
    await asyncio.gather(*sites, return_exceptions=True)


@pytest.mark.parametrize("epsilon", [None, 1.0])
def test_no_second_run_of_a_plan_is_opened_without_one_site(tmp_path: Path, epsilon: float | None) -> None:
    budget = None if epsilon is None else {"epsilon": 9.0, "delta": 1e-5}
    workspace = federation(tmp_path, budget, epsilon=epsilon, fewest=3)
    assert play(workspace, Federation.everybody).state.value == "finished"
    assert "column-statistics sum of round 0 failed 3 times" in play(workspace, three, fresh=True).words
    assert metrics(workspace) == []


def test_a_run_that_is_begun_anew_draws_other_noise_and_is_charged_again(tmp_path: Path) -> None:
    workspace = federation(tmp_path, {"epsilon": 4.0, "delta": 1e-5})
    told = []
    for fresh in (False, True):
        assert play(workspace, Federation.everybody, fresh=fresh).state.value == "finished"
        told.append(read_result(workspace.result).statistics)
    assert told[0] != told[1]
    assert [len(ledger(tmp_path, name)) for name in NAMES] == [2] * len(NAMES)


def test_a_site_of_too_few_records_adds_its_noise_and_nothing_else_and_is_charged_nothing(tmp_path: Path) -> None:
    workspace = federation(tmp_path)
    few = tmp_path / "clinic-b.csv"
    few.write_text("\n".join(few.read_text().splitlines()[:6]) + "\n")
    over(tmp_path / "clinic-b.yaml", policy={"min_records": 20, "reveals": ["column-statistics"]})
    assert play(workspace, Federation.everybody).state.value == "finished"
    found = read_result(workspace.result).statistics
    assert found is not None
    records = next(row for row in found.rows if row.statistic == "records")
    assert records.value is not None
    assert records.error is not None
    assert abs(records.value - 3 * RECORDS) < 6 * records.error
    assert found.noise_deviation == records.error
    assert not (tmp_path / "state" / "clinic-b.ledger.sqlite").exists() or not ledger(tmp_path, "clinic-b")


def test_a_site_without_a_budget_answers_no_statistics_under_noise(tmp_path: Path) -> None:
    workspace = federation(tmp_path, None)
    with pytest.raises(PrivacyError, match="adds up over all plans, and no budget bounds it"):
        make_ready(site(workspace, "clinic-a"))


@pytest.mark.parametrize(("epsilon", "kind"), [(1.0, "column-statistics"), (None, "exact-statistics")])
def test_a_site_answers_neither_kind_unless_its_policy_names_it(
    tmp_path: Path, epsilon: float | None, kind: str
) -> None:
    workspace = federation(tmp_path, epsilon=epsilon)
    over(tmp_path / "clinic-a.yaml", policy={"min_records": 1})
    with pytest.raises(PolicyError, match=f"statistics reveals {kind}"):
        make_ready(site(workspace, "clinic-a"))


def test_exact_statistics_of_a_column_are_told_twice_for_the_same_question_alone(tmp_path: Path) -> None:
    """Two sums over the same sites, of which one leaves the women of one ward out, differ by these women."""
    workspace = federation(tmp_path / "first", None, epsilon=None)
    assert play(workspace, Federation.everybody).state.value == "finished"
    make_ready(site(after(tmp_path / "same", workspace, epsilon=None, min_group=30), "clinic-a"))
    # A column that was never asked about may be, but of the same rows: their number is told too.
    sex = {"columns": {"sex": {"count": True}}}
    make_ready(site(after(tmp_path / "other", workspace, epsilon=None, **sex), "clinic-a"))
    for folder, table, statistics in (
        ("other rows", {"rows": {"sex": ["F"]}}, sex),
        ("rows", {"rows": {"sex": ["F"]}}, {}),
        ("groups", {}, {"by": "sex"}),
        ("bins", {}, {"columns": {"age": {"bins": [20, 41, 60]}}}),
    ):
        other = after(tmp_path / folder, workspace, epsilon=None, table=table, **statistics)
        with pytest.raises(PolicyError, match="earlier_cohort"):
            make_ready(site(other, "clinic-a"))


def after(folder: Path, first: Workspace, **statistics: object) -> Workspace:
    """Return another study of the same sites, whose ledgers and histories are those of the first."""
    budget = yaml.safe_load((first.folder / "clinic-a.yaml").read_text())["budget"]
    workspace = federation(folder, budget, **statistics)
    for name in NAMES:
        kept = {
            "ledger": str(first.folder / "state" / f"{name}.ledger.sqlite"),
            "history": str(first.folder / "history" / f"{name}.sqlite"),
        }
        over(folder / f"{name}.yaml", **kept)
    return workspace


def site(workspace: Workspace, name: str) -> PreparedSite:
    return read_site(name, workspace.folder / f"{name}.yaml", workspace.plan, None)


@pytest.mark.slow
def test_real_processes_answer_one_sum_and_end_also_where_another_one_computes(
    tmp_path: Path, started: Started
) -> None:
    started.workspace = federation(tmp_path, None, epsilon=None)
    over(tmp_path / "clinic-c.yaml", worker={"process": True})
    aggregator = started.aggregator()
    sites = {name: started.collaborator(name) for name in NAMES}
    told = {name: ended(process) for name, process in sites.items()}
    status, words = ended(aggregator)
    assert status == 0, words
    assert {name: status for name, (status, _) in told.items()} == dict.fromkeys(NAMES, 0)
    simulated = simulate_statistics(load_plan(started.workspace.plan), tmp_path).statistics
    assert read_result(started.workspace.result).statistics == simulated
