"""A refusal on both sides of a real stream: values in the site's log, one of a closed list in the aggregator's."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from aggregator.streams import Streams
from collaborator.preparation import find_site, keep_policy, make_ready
from collaborator.withdrawal import withdraw
from fedfair.cli.loopback import Workspace, prepare
from fedfair.errors import PrivacyError, RemoteProtocolError
from fedfair.policy.plan_check import PolicyError
from fedfair.policy.refusal_reasons import RefusalReason
from fedfair.wire.calling import Address
from fedfair.wire.frames import Welcome
from tests.interop.federation_kit import NAMES, Federation, play
from tests.plans import small_plan

MASKED = {"mode": "malicious", "most_records": 512, "clip": 1.0}


def state(workspace: Workspace, name: str, **policy: object) -> None:
    file = workspace.folder / f"{name}.yaml"
    site = yaml.safe_load(file.read_text())
    site["policy"] |= policy
    file.write_text(yaml.safe_dump(site))


def lines(workspace: Workspace, name: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in (workspace.folder / "logs" / name).read_text().splitlines()]


def _without_stamp(line: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in line.items() if key not in {"time", "run_id"}}


def left(workspace: Workspace) -> list[dict[str, object]]:
    told = [_without_stamp(line) for line in lines(workspace, "aggregator_departures.jsonl")]
    assert json.loads(workspace.result.read_text())["left"] == told
    return told


@pytest.mark.parametrize("protection", [None, MASKED], ids=["plain", "masked"])
def test_a_sum_that_one_sites_policy_refuses_goes_on_without_it_and_both_sides_know_why(
    tmp_path: Path, protection: Mapping[str, object] | None
) -> None:
    workspace = prepare(tmp_path, small_plan(rounds=2, federation={"min_collaborators": 2}, protection=protection))
    state(workspace, "clinic-c", max_evaluations=1)
    notes: list[str] = []

    async def everybody(federation: Federation) -> None:
        await asyncio.gather(*(federation.take_part(name) for name in NAMES))
        notes.extend(federation.watching.notes)

    assert play(workspace, everybody).state.value == "finished"
    (refusal,) = lines(workspace, "clinic-c_refusals.jsonl")
    assert {name: refusal[name] for name in ("term", "asked", "allowed", "round", "purpose")} == {
        "term": "max_evaluations",
        "asked": "evaluation 2",
        "allowed": "at most 1",
        "round": 2,
        "purpose": "evaluation",
    }
    words = "the policy of clinic-c allows 1 evaluations under this plan; this would be evaluation 2"
    assert refusal["reason"] == words
    told_words = RefusalReason.POLICY_MAX_EVALUATIONS.value
    (told,) = lines(workspace, "aggregator_refusals.jsonl")
    assert _without_stamp(told) == {
        "collaborator": "clinic-c",
        "round": 2,
        "purpose": "evaluation",
        "attempt": refusal["attempt"],
        "reason": told_words,
    }
    start = f"clinic-c has been dropped from the evaluation sum of round 2: it abstains: {told_words}"
    (note,) = (note for note in notes if "clinic-c has been dropped from" in note)
    assert note.startswith(start)
    lost = any("evaluation sum of round 2, attempt 1, is lost" in text for text in notes)
    assert lost or note == f"{start}; the sum continues with 2 of 3; 2 are needed"


def test_a_run_that_a_policy_refuses_is_left_at_the_greeting_with_the_reason(tmp_path: Path) -> None:
    workspace = prepare(tmp_path, small_plan(rounds=2))
    state(workspace, "clinic-c", algorithms=["fedavg"])

    async def one_leaves(federation: Federation) -> None:
        with pytest.raises(PolicyError, match="algorithm: fedsrcvar"):
            await federation.take_part("clinic-c")
        await federation.watching.until_said(
            "clinic-c withdraws from the federation after round 0: its own policy"
        )
        del federation.sites["clinic-c"]
        state(workspace, "clinic-c", algorithms=["fedavg", "fedsrcvar"])
        await asyncio.gather(*(federation.take_part(name) for name in NAMES))

    assert play(workspace, one_leaves).state.value == "finished"
    (refusal,) = lines(workspace, "clinic-c_refusals.jsonl")
    assert (refusal["term"], refusal["asked"], refusal["allowed"]) == ("algorithms", "fedsrcvar", "fedavg")
    (departure,) = left(workspace)
    assert departure["collaborator"] == "clinic-c"
    assert departure["reason"] == RefusalReason.POLICY_ALGORITHMS.value


def test_a_site_whose_policy_refuses_the_plan_does_not_come_and_says_so(tmp_path: Path) -> None:
    workspace = prepare(tmp_path, small_plan(rounds=2))
    state(workspace, "clinic-c", max_rounds=1)
    # It has not approved the plan either: a refusal needs no approval.
    approval = workspace.folder / "approvals" / "clinic-c.json"
    approved = approval.read_bytes()
    approval.unlink()
    site = find_site("clinic-c", workspace.folder / "clinic-c.yaml", workspace.plan, None)
    with pytest.raises(PolicyError) as caught:
        keep_policy(site)

    async def one_declines(federation: Federation) -> None:
        address, logs = Address("localhost", federation.port), workspace.folder / "logs"
        for _ in range(2):
            await asyncio.to_thread(withdraw, site, address, logs, caught.value)
        await federation.watching.until_said("clinic-c refuses to take part: its own policy refuses")
        approval.write_bytes(approved)
        state(workspace, "clinic-c", max_rounds=2)
        await asyncio.gather(*(federation.take_part(name) for name in NAMES))

    assert play(workspace, one_declines).state.value == "finished"
    assert [entry["term"] for entry in lines(workspace, "clinic-c_refusals.jsonl")] == ["max_rounds", "max_rounds"]
    assert "was not told" not in (workspace.folder / "logs" / "clinic-c_notes.log").read_text()
    (departure,) = left(workspace)
    assert departure["reason"] == RefusalReason.POLICY_MAX_ROUNDS.value
    assert (
        "training.rounds: 2; this site's policy allows 1"
        in (workspace.folder / "logs" / "clinic-c_refusals.jsonl").read_text()
    )


def test_a_site_whose_budget_does_not_let_it_begin_says_so_without_a_figure(tmp_path: Path) -> None:
    workspace = prepare(tmp_path, small_plan(rounds=2))
    file = workspace.folder / "clinic-c.yaml"
    without = file.read_text()
    file.write_text(without + "budget: {epsilon: 3.25, delta: 1.0e-5}\n")
    site = find_site("clinic-c", file, workspace.plan, None)
    with pytest.raises(PrivacyError, match=r"3\.25") as caught:
        make_ready(site)

    async def one_declines(federation: Federation) -> None:
        address, logs = Address("localhost", federation.port), workspace.folder / "logs"
        await asyncio.to_thread(withdraw, site, address, logs, caught.value)
        await federation.watching.until_said(f"clinic-c refuses to take part: {RefusalReason.BUDGET.value}")
        file.write_text(without)
        await asyncio.gather(*(federation.take_part(name) for name in NAMES))

    assert play(workspace, one_declines).state.value == "finished"
    (departure,) = left(workspace)
    assert (departure["collaborator"], departure["reason"]) == ("clinic-c", RefusalReason.BUDGET.value)


def test_a_refusal_stands_where_nobody_can_be_told(tmp_path: Path) -> None:
    workspace = prepare(tmp_path, small_plan(rounds=2))
    state(workspace, "clinic-a", max_rounds=1)
    site = find_site("clinic-a", workspace.folder / "clinic-a.yaml", workspace.plan, None)
    with pytest.raises(PolicyError) as caught:
        keep_policy(site)
    nobody = Address("localhost", site.plan.federation.aggregator.port)
    withdraw(site, nobody, workspace.folder / "logs", caught.value)
    assert [entry["term"] for entry in lines(workspace, "clinic-a_refusals.jsonl")] == ["max_rounds"]
    assert "the aggregator was not notified: " in (workspace.folder / "logs" / "clinic-a_notes.log").read_text()


def test_an_aggregator_that_lies_about_the_run_is_told_why_a_site_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = prepare(tmp_path, small_plan(rounds=2))
    honest = Streams.welcome

    def lying(self: Streams) -> Welcome:
        return replace(honest(self), rounds_total=10**9)

    async def one_leaves(federation: Federation) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(Streams, "welcome", lying)
            with pytest.raises(RemoteProtocolError, match="announces 1000000000 rounds, the plan has 2"):
                await federation.take_part("clinic-c")
        await federation.watching.until_said(
            "clinic-c withdraws from the federation after round 0: it refuses a message"
        )
        await asyncio.gather(*(federation.take_part(name) for name in NAMES))

    assert play(workspace, one_leaves).state.value == "finished"
    (refusal,) = lines(workspace, "clinic-c_refusals.jsonl")
    assert refusal["reason"] == "the aggregator announces 1000000000 rounds, the plan has 2"


def test_a_run_that_loses_a_site_goes_on_without_the_evaluations_that_would_be_of_fewer(tmp_path: Path) -> None:
    plan = small_plan(rounds=4, federation={"min_collaborators": 2}, protection=MASKED, output="best")
    evaluation = plan["evaluation"]
    assert isinstance(evaluation, dict)
    workspace = prepare(tmp_path, plan | {"evaluation": evaluation | {"every": 2}})
    for name in NAMES[:2]:
        state(workspace, name, evaluation_cohort="same")
    state(workspace, "clinic-c", max_evaluations=1)

    assert play(workspace, Federation.everybody).state.value == "finished"
    result = json.loads(workspace.result.read_text())
    assert [entry["round"] for entry in result["history"]] == [0]
    for name in NAMES[:2]:
        terms = {
            (line["term"], line["asked"], line["allowed"]) for line in lines(workspace, f"{name}_refusals.jsonl")
        }
        assert terms == {("evaluation_cohort", "1 2", "1 2 3")}
