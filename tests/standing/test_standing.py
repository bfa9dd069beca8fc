"""A federation that stands, as real processes: studies arrive, people decide, and what they approve runs."""

import resource
import signal
from pathlib import Path

import pytest

from fedfair.consent.decisions import Choice
from fedfair.process.exit_status import ExitStatus
from tests.standing.standing_kit import StandingFederation, result, small

THREE = ("clinic-a", "clinic-b", "clinic-c")


def ended(federation: StandingFederation, study: str, phase: str = "ended") -> bool:
    return {federation.phase(site, study) for site in federation.sites} == {phase}


def test_a_study_that_every_sites_people_approve_runs_to_its_result(tmp_path: Path) -> None:
    federation = StandingFederation(tmp_path, THREE).founded()
    with federation.standing():
        federation.submit("first", small(THREE))
        for site in THREE:
            federation.decide(site, "first")
        federation.until_hub("first", "finished")
        federation.until(lambda: ended(federation, "first"), "all know it")
        assert "first: finished" in federation.run("bert", "study", "status", "first")
        assert "result.json" in federation.run("bert", "study", "results", "first")
        # Services wait for news all the time; a hub that is asked to stop ends all the same, and quietly.
        assert federation.end("hub") == ExitStatus.STOPPED
        assert "Traceback" not in federation.said()
    assert result(federation, "first")["state"] == "finished"
    record = (tmp_path / "clinic-a" / "egress" / "clinic-a-acts.jsonl").read_text()
    assert '"act"' in record
    assert (tmp_path / "clinic-a" / "egress" / "clinic-a-first.jsonl").exists()
    # Who decided stays at the site.
    for path in (tmp_path / "hub").rglob("*"):
        assert not path.is_file() or b"amina" not in path.read_bytes(), path


def of_two(rounds: int, seed: int) -> dict[str, object]:
    """Return a plan that goes on with two of three sites, whatever these have opened before over all three."""
    plan = small(THREE, rounds=rounds)
    federation: dict[str, object] = {**plan["federation"], "min_collaborators": 2}  # type: ignore[dict-item]
    task = {**plan["task"], "standardize": "none", "model": {"name": "linear"}}  # type: ignore[dict-item]
    training = {**plan["training"], "seed": seed}  # type: ignore[dict-item]
    return {**plan, "federation": federation, "task": task, "training": training}


@pytest.mark.slow
def test_one_study_is_refused_one_withdrawn_and_the_others_finish_through_kills(tmp_path: Path) -> None:
    federation = StandingFederation(tmp_path, THREE).founded()
    for site in THREE:
        with (tmp_path / site / "collaborator.yaml").open("a") as target:
            target.write("  min_collaborators: 2\n")
    with federation.standing():
        for seed, (name, rounds) in enumerate({"first": 6, "left": 200, "second": 6}.items()):
            federation.submit(name, of_two(rounds, seed))
        federation.submit("unwanted", of_two(5, 9))
        federation.decide("clinic-b", "unwanted", Choice.REFUSE, ("jonas",))
        federation.decide("clinic-a", "unwanted", Choice.REFUSE, ("amina",))
        assert dict(federation.until_hub("unwanted", "refused").refused)["clinic-b"] == "so"
        for name in ("first", "left", "second"):
            for site in THREE:
                federation.decide(site, name)
        federation.until_hub("first", "running", "finished")
        for host in ("clinic-a", "hub"):
            federation.end(host, signal.SIGKILL)
            federation.start(host)
        federation.until_hub("left", "running", "finished")
        # A disk that is full for a while ends nothing at a site.
        pid = federation.processes["clinic-b"].pid
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
        federation.submit("later", of_two(5, 17))
        federation.until(lambda: federation.phase("clinic-a", "later") == "proposed", "later arrives at clinic-a")
        assert federation.phase("clinic-b", "later") == "arriving"
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        federation.decide("clinic-b", "later", Choice.REFUSE, ("amina",))
        assert federation.processes["clinic-b"].poll() is None
        federation.decide("clinic-c", "left", Choice.WITHDRAW, ("amina",))
        federation.until(lambda: federation.phase("clinic-c", "left") == "withdrawn", "clinic-c has withdrawn")
        for name in ("first", "left", "second"):
            federation.until_hub(name, "finished")
        federation.until(lambda: ended(federation, "second"), "all know it")
        assert federation.phase("clinic-b", "unwanted") == "refused"
        assert federation.phase("clinic-a", "left") == "ended"
