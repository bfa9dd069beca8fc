"""A site whose budget ends during a run leaves in words at that round; the others continue to the end."""

import asyncio
import json
from pathlib import Path

import pytest
import yaml

from collaborator.ledger import Ledger
from fedfair.cli.loopback import Workspace, prepare
from fedfair.errors import PrivacyError
from fedfair.privacy.accounting import epsilon
from fedfair.privacy.releases import GaussianRelease
from tests.interop.federation_kit import NAMES, Federation, metrics, play
from tests.plans import small_plan

ROUNDS, LAST = 4, 2
"""The budget of clinic-c ends with round 2 of 4."""

MASKED = {"mode": "malicious", "most_records": 512, "clip": 1.0}


# The sites of one process share Python's list of warnings, which only one thread at a time can silence.
pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook is firing:UserWarning")


def noised(workspace: Path, protection: dict[str, object] | None) -> Workspace:
    plan = small_plan(rounds=ROUNDS, protection=protection, federation={"min_collaborators": 2})
    assert isinstance(plan["task"], dict)
    plan["task"]["standardize"] = "none"
    # Full batches: without sampling, epsilon is composed in no time.
    assert isinstance(plan["training"], dict)
    plan["training"] |= {"batch_size": "full", "local_steps": 1}
    return prepare(
        workspace, plan | {"privacy": {"sample_level": {"noise_multiplier": 30.0, "gradients": "ghost"}}}
    )


def spent_after(rounds: int) -> float:
    """Return what clinic-c has released when so many rounds are done: one evaluation came first, none later."""
    return epsilon(
        [GaussianRelease("training", 30.0, 1.0, rounds), GaussianRelease("evaluation", 20.0, 1.0, 1)], 1e-5
    )


def give_budget(workspace: Workspace, name: str, most: float) -> None:
    file = workspace.folder / f"{name}.yaml"
    site = yaml.safe_load(file.read_text()) | {"budget": {"epsilon": most, "delta": 1e-5}}
    file.write_text(yaml.safe_dump(site))


def test_a_site_leaves_at_the_round_in_which_its_budget_ends_and_the_others_finish(tmp_path: Path) -> None:
    workspace = noised(tmp_path, MASKED)
    most = (spent_after(LAST) + spent_after(LAST + 1)) / 2
    give_budget(workspace, "clinic-c", most)
    notes: list[str] = []

    async def one_leaves(federation: Federation) -> None:
        account = federation.ready("clinic-c").account
        assert account is not None
        assert f"it ends in round {LAST + 1} of {ROUNDS}, and this site will withdraw then" in account.forecast[-1]
        others = [asyncio.create_task(federation.take_part(name)) for name in NAMES[:2]]
        with pytest.raises(PrivacyError, match="the budget of this site allows no further training release"):
            await federation.take_part("clinic-c")
        await asyncio.gather(*others)
        notes.extend(federation.watching.notes)

    assert play(workspace, one_leaves).state.value == "finished"
    reason = "its privacy budget allows no further release, so it withdraws"
    assert f"clinic-c withdraws from the federation after round {LAST}: {reason}" in notes
    result = json.loads(workspace.result.read_text())
    assert result["left"] == [{"collaborator": "clinic-c", "round": LAST, "reason": reason}]
    trained = [line["contributors"] for line in metrics(workspace) if line["purpose"] == "training"]
    assert trained == [3] * LAST + [2] * (ROUNDS - LAST)
    entries = Ledger(workspace.folder / "state" / "clinic-c.ledger.sqlite").look()
    releases = [entry.release for entry in entries]
    assert [release.purpose for release in releases].count("training") == LAST
    assert epsilon(releases, 1e-5) <= most

    # Started again, it is refused before it would connect to anybody.
    with pytest.raises(PrivacyError, match=r"is spent, 0\.\d+ is left, with this it would be"):
        Federation(workspace, 1, None, None).ready("clinic-c")  # type: ignore[arg-type]  # nobody is connected to
