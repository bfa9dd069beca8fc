"""Three sites as real processes, one of them with a small budget: what their operators read."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop import test_leaving_sites as leaving
from tests.interop.federation_kit import NAMES, metrics
from tests.interop.processes import Started, ended, until_line

pytestmark = pytest.mark.slow


@pytest.fixture
def processes() -> Iterator[Started]:
    started = Started()
    yield started
    for process in started.running:
        process.kill()
        process.communicate()


def test_a_process_whose_budget_ends_leaves_with_status_2_and_cannot_be_started_again(
    tmp_path: Path, processes: Started
) -> None:
    workspace = processes.workspace = leaving.noised(tmp_path, leaving.MASKED)
    most = (leaving.spent_after(leaving.LAST) + leaving.spent_after(leaving.LAST + 1)) / 2
    leaving.give_budget(workspace, "clinic-c", most)
    aggregator = processes.aggregator()
    sites = {name: processes.collaborator(name) for name in NAMES}
    until_line(sites["clinic-c"], f"it ends in round {leaving.LAST + 1} of {leaving.ROUNDS}")
    status, words = ended(sites["clinic-c"])
    assert status == 2
    assert "the budget of this site allows no further training release" in words
    assert "Traceback" not in words
    for name in NAMES[:2]:
        assert ended(sites[name])[0] == 0
    status, words = ended(aggregator)
    assert status == 0
    assert f"clinic-c withdraws from the federation after round {leaving.LAST}" in words
    (left,) = json.loads(workspace.result.read_text())["left"]
    assert (left["collaborator"], left["round"]) == ("clinic-c", leaving.LAST)
    trained = [line["contributors"] for line in metrics(workspace) if line["purpose"] == "training"]
    assert trained == [3] * leaving.LAST + [2] * (leaving.ROUNDS - leaving.LAST)

    status, words = ended(processes.collaborator("clinic-c"))
    assert status == 2
    assert "is left, with this it would be" in words
    assert "cannot connect" not in words

    shown = processes.command("fedfair.cli", "privacy", "show", "-c", "clinic-c.yaml", "--json")
    (found,) = json.loads(shown.stdout)["data_sets"]
    assert found["epsilon"] == pytest.approx(leaving.spent_after(leaving.LAST), abs=1e-9)
    assert 0 <= found["left"] < leaving.spent_after(leaving.LAST + 1) - leaving.spent_after(leaving.LAST)
    assert found["statement"].endswith("covers: training updates, evaluation sums.")
