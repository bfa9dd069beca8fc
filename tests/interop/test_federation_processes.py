"""The real processes, as an operator starts them, with everything that can happen to a process."""

import json
import signal
from pathlib import Path

import pytest

from fedfair.audit.reader import MessageTally
from fedfair.audit.summary import compare
from fedfair.cli.loopback import Workspace, prepare
from tests.interop.federation_kit import NAMES, metrics, model_files_agree, read_record, states_agree
from tests.interop.processes import Started, ended, until_line
from tests.plans import small_plan


def test_four_processes_give_the_model_of_the_simulation_and_a_finished_run_is_not_repeated(
    tmp_path: Path, started: Started
) -> None:
    started.workspace = prepare(tmp_path, small_plan(rounds=20))
    aggregator = started.aggregator()
    sites = [started.collaborator(name) for name in NAMES]
    for process in (aggregator, *sites):
        status, words = ended(process)
        assert status == 0, words
        assert "all 20 rounds are done" in words
    model_files_agree(started.workspace, 1e-9)
    assert {line["contributors"] for line in metrics(started.workspace)} == {3}
    own = (tmp_path / "logs" / "clinic-a_metrics.jsonl").read_text().splitlines()
    assert {json.loads(line)["outcome"] for line in own} == {"accepted"}
    before = (tmp_path / "save" / "last.safetensors").stat().st_mtime_ns
    again = started.command("aggregator", "start", "--json")
    assert again.returncode == 0
    assert "nothing was repeated" in again.stdout
    assert (tmp_path / "save" / "last.safetensors").stat().st_mtime_ns == before


@pytest.mark.slow
def test_an_aggregator_killed_in_the_middle_continues_to_the_same_model(tmp_path: Path, started: Started) -> None:
    started.workspace = prepare(tmp_path, small_plan(rounds=200, learning_rate=0.01))
    aggregator = started.aggregator()
    sites = [started.collaborator(name) for name in NAMES]
    until_line(aggregator, "round 50 of 200")
    aggregator.send_signal(signal.SIGKILL)
    ended(aggregator)
    # The collaborators are left alone: they find the new process by themselves.
    second = started.aggregator()
    for process in (second, *sites):
        status, words = ended(process)
        assert status == 0, words
    # Every training sum was made once; the killed process may have been in the middle of one.
    rounds = [line["round"] for line in metrics(started.workspace) if line["purpose"] == "training"]
    assert rounds == sorted(set(rounds))
    model_files_agree(started.workspace, 1e-8)
    states_agree(started.workspace)
    # The mirror continues where the killed process left it; it may lack what that one had not read any more.
    for name in NAMES:
        arrived, site = (read_record(tmp_path / side / f"{name}.jsonl") for side in ("received", "egress"))
        assert compare(site, [arrived]).foreign == MessageTally(0, 0)
        assert site.closed
        assert arrived.closed


def contributors_after_the_loss(workspace: Workspace) -> list[object]:
    """Return how many contributed to each sum, from the first that a site was missing in."""
    counts = [line["contributors"] for line in metrics(workspace)]
    return counts[counts.index(2) :]


@pytest.mark.slow
def test_a_killed_collaborator_is_done_without_and_taken_back(tmp_path: Path, started: Started) -> None:
    federation = {"min_collaborators": 2, "reconnect_grace_seconds": 0}
    started.workspace = prepare(tmp_path, small_plan(rounds=100_000, federation=federation))
    aggregator = started.aggregator()
    sites = [started.collaborator(name) for name in NAMES]
    until_line(aggregator, "round 5 of")
    sites[2].send_signal(signal.SIGKILL)
    ended(sites[2])
    until_line(aggregator, "clinic-c disconnected")
    until_line(aggregator, "train: mean")
    until_line(aggregator, "train: mean")
    back = started.collaborator("clinic-c")
    until_line(aggregator, "clinic-c connected")
    # A sum may continue without a site that is slow, so which sum is the first of all three again is not known.
    while 3 not in contributors_after_the_loss(started.workspace):
        until_line(aggregator, "train: mean")
    aggregator.send_signal(signal.SIGTERM)
    status, words = ended(aggregator)
    assert status == 4
    assert "error:" not in words
    # Said once, with what to do about it.
    assert words.count("its operator stopped it (SIGTERM)") == 1
    assert "-> start it again: it continues after round" in words
    # The notes are kept, also of what scrolled by.
    notes = (tmp_path / "logs" / "aggregator_notes.log").read_text()
    assert notes.index("listening on port") < notes.index("clinic-c disconnected") < notes.index("SIGTERM")
    assert metrics(started.workspace)[0]["contributors"] == 3
    for process in (*sites[:2], back):
        until_line(process, "its operator stopped it")
        process.send_signal(signal.SIGTERM)
        status, words = ended(process)
        assert status == 4
        assert "stopped by its operator" in words
        assert "Traceback" not in words
    assert "SIGTERM: leaving the federation" in (tmp_path / "logs" / "clinic-a_notes.log").read_text()


def test_a_site_that_approved_another_plan_is_refused_with_both_digests(tmp_path: Path, started: Started) -> None:
    started.workspace = prepare(tmp_path, small_plan(rounds=2))
    approved = json.loads((tmp_path / "approvals" / "clinic-a.json").read_text())["plan_digest"]
    plan = started.workspace.plan
    plan.write_text(plan.read_text().replace("rounds: 2", "rounds: 3"))
    refused = started.command("collaborator", "start", "-n", "clinic-a", "-c", "clinic-a.yaml")
    assert refused.returncode == 2
    assert approved in refused.stdout
    assert refused.stdout.count("sha256:") == 2
    assert "fedfair plan approve" in refused.stdout
    assert "Traceback" not in refused.stdout


@pytest.mark.slow
def test_the_preflight_says_what_works_and_what_does_not(tmp_path: Path, started: Started) -> None:
    started.workspace = prepare(tmp_path, small_plan(rounds=1))
    started.aggregator()
    words = ("check", "-n", "clinic-a", "-c", "clinic-a.yaml", "--json", "-a")
    good = started.command("collaborator", *words, f"localhost:{started.port}")
    assert good.returncode == 0, good.stdout
    items = json.loads(good.stdout)["items"]
    assert [item["name"] for item in items][-6:] == [
        "aggregator: certificate",
        "aggregator: version",
        "aggregator: plan",
        "aggregator: binding",
        "aggregator: approval",
        "aggregator: clock",
    ]
    assert all(item["passed"] for item in items)
    shown = started.command(
        "collaborator", *(word for word in words if word != "--json"), f"localhost:{started.port}"
    )
    digest = next(item["detail"] for item in items if item["name"] == "plan digest")
    assert digest in "".join(shown.stdout.split()), "a digest is broken over lines, never cut"
    bad = started.command("collaborator", *words, "localhost:1")
    assert bad.returncode == 1
    failed = [item for item in json.loads(bad.stdout)["items"] if not item["passed"]]
    assert [item["name"] for item in failed] == ["connection"]
    assert failed[0]["remedy"]


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda folder: (folder / "cert" / "aggregator" / "tls.crt").unlink(), "certificate of aggregator"),
        (lambda folder: (folder / "plan" / "plan.yaml").unlink(), "plan.yaml"),
        (lambda folder: _hide_nobody(folder / "plan" / "plan.yaml"), "hides nobody"),
    ],
)
def test_an_aggregator_that_cannot_start_says_why_in_one_message(
    tmp_path: Path, started: Started, spoil: object, words: str
) -> None:
    started.workspace = prepare(tmp_path, small_plan(rounds=1))
    assert callable(spoil)
    spoil(tmp_path)
    refused = started.command("aggregator", "start", "--quiet")
    assert refused.returncode == 2
    assert words in refused.stdout
    assert "Traceback" not in refused.stdout


def test_a_result_that_cannot_be_written_does_not_hide_how_the_run_ended(tmp_path: Path, started: Started) -> None:
    plan = small_plan(rounds=1, federation={"join_deadline_seconds": 1})
    started.workspace = prepare(tmp_path, plan)
    (tmp_path / "result.json").mkdir()
    refused = started.command("aggregator", "start", "--quiet", "--listen", "localhost:0")
    assert refused.returncode == 1
    assert "the join deadline has passed without clinic-a, clinic-b, clinic-c" in refused.stdout
    assert "result.json cannot be written: Is a directory" in refused.stdout


def test_a_port_that_is_taken_is_named(tmp_path: Path, started: Started) -> None:
    started.workspace = prepare(tmp_path / "one", small_plan(rounds=1))
    started.aggregator()
    started.workspace = prepare(tmp_path / "two", small_plan(rounds=1))
    refused = started.command("aggregator", "start", "--listen", f"localhost:{started.port}")
    assert refused.returncode == 1
    # One message in the system's words, and none of gRPC's own.
    assert f"error: cannot listen on localhost:{started.port}: Address already in use\n" in refused.stdout
    assert "add_port" not in refused.stdout
    assert "GRPC_VERBOSITY" not in refused.stdout
    assert "Traceback" not in refused.stdout


def test_an_address_of_another_machine_or_without_a_port_is_refused(tmp_path: Path, started: Started) -> None:
    started.workspace = prepare(tmp_path, small_plan(rounds=1))
    # 192.0.2.0/24 belongs to nobody (RFC 5737).
    elsewhere = started.command("aggregator", "start", "--quiet", "--listen", "192.0.2.1:8443")
    assert elsewhere.returncode == 1
    assert "error: cannot listen on 192.0.2.1:8443: Cannot assign requested address\n" in elsewhere.stdout
    assert "add_port" not in elsewhere.stdout
    unreadable = started.command("aggregator", "start", "--quiet", "--listen", "8443")
    assert unreadable.returncode == 2
    assert "'8443' is not HOST:PORT" in unreadable.stdout
    assert "WARNING" not in unreadable.stdout


def _hide_nobody(plan: Path) -> None:
    _replace(plan, "mode: 'off'", "colluders: 1")
    _replace(plan, "  name: heart", "  name: heart\n  min_collaborators: 2")


def _replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
