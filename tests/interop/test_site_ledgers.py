"""Which sites keep a ledger of a plan without noise, and what that does to every later promise."""

from pathlib import Path

import pytest
import yaml

from collaborator.ledger import Ledger
from collaborator.preparation import forecast_of, read_records
from fedfair.cli.loopback import Workspace, prepare
from fedfair.errors import PrivacyError
from fedfair.privacy.releases import Unprotected
from fedfair.privacy.spending import spending
from tests.interop.federation_kit import Federation, play
from tests.plans import small_plan
from tests.site_reading import read_site


def state(workspace: Workspace, name: str, **keys: object) -> None:
    file = workspace.folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | keys))


def test_a_plan_without_noise_is_written_down_where_a_site_asks_for_it_and_no_epsilon_is_stated_after_it(
    tmp_path: Path,
) -> None:
    workspace = prepare(tmp_path, small_plan(rounds=2))
    state(workspace, "clinic-b", ledger="kept.sqlite")
    assert play(workspace, Federation.everybody).state.value == "finished"
    entries = Ledger(tmp_path / "kept.sqlite").look()
    # One line for each purpose, in the order of the run, however many sums there were.
    purposes = ("standardisation", "evaluation", "training")
    assert tuple(entry.release for entry in entries) == tuple(Unprotected(purpose) for purpose in purposes)
    assert {entry.origin.participant for entry in entries} == {"clinic-b"}
    assert "standardisation sums without noise" in spending(entries, None, 1e-5, None).refusal
    # The sites that never asked for one have none.
    assert not (tmp_path / "ledger.sqlite").exists()

    # The same site cannot keep a budget for these records any more, and is told so by `collaborator check`.
    state(workspace, "clinic-b", budget={"epsilon": 8.0})
    site = read_site("clinic-b", tmp_path / "clinic-b.yaml", workspace.plan, None)
    with pytest.raises(PrivacyError, match="carry no noise for single records"):
        forecast_of(site, bytes(32), len(read_records(site).splits.train))
    assert Ledger(tmp_path / "kept.sqlite").look() == entries


def test_asking_what_a_plan_costs_begins_no_ledger(tmp_path: Path) -> None:
    plan = small_plan(rounds=2)
    assert isinstance(plan["task"], dict)
    plan["task"]["standardize"] = "none"
    workspace = prepare(tmp_path, plan | {"privacy": {"sample_level": {"noise_multiplier": 2.0}}})
    state(workspace, "clinic-a", ledger=None, budget={"epsilon": 100.0})
    site = read_site("clinic-a", tmp_path / "clinic-a.yaml", workspace.plan, None)
    cost, left = forecast_of(site, bytes(32), len(read_records(site).splits.train))
    assert cost.startswith("2 rounds of this plan cost epsilon ")
    assert "0 of epsilon 100 at delta 1e-05 is spent, 100 is left" in left
    assert site.ledger_file == tmp_path / "ledger.sqlite"
    assert site.keeps_ledger
    assert not site.ledger_file.exists()
