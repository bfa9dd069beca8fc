"""The commands of a hub as processes: made, filled, killed in the middle of two studies, and asked for results."""

import asyncio
import json
import re
from pathlib import Path

from aggregator.hub.commands import FIRST_ACT
from fedfair.consortium.acts import ActKind
from fedfair.consortium.studies import StudyPhase
from tests.fork_server import ENVIRONMENT, Process, played, started
from tests.hub.hub_kit import SITES, Consortium, PlayedHub, Said
from tests.interop.federation_kit import WatchedWorker
from tests.patience import PATIENCE
from tests.plans import small_plan


def command(folder: Path, *words: str) -> str:
    done = played(["-m", "fedfair.cli", *words], folder)
    assert done.returncode == 0, done.stdout
    return done.stdout


def hub_of(consortium: Consortium) -> Process:
    words = ["-m", "fedfair.cli", "hub", "start", "--folder", str(consortium.hub.path)]
    return started(words, consortium.folder, ENVIRONMENT)


async def until_ready(process: Process) -> None:
    """Read what the hub says until it listens; the rest is read at its end."""
    assert process.stdout is not None
    said = []
    while "listens on port" not in (line := await asyncio.to_thread(process.stdout.readline)):
        assert line, said
        said.append(line)


def test_a_hub_that_is_killed_in_the_middle_of_two_studies_resumes_both(tmp_path: Path) -> None:
    consortium = Consortium(tmp_path).made()
    studies = ("one", "two")
    for seed, study in enumerate(studies):
        consortium.workspace(study, small_plan(rounds=6, names=SITES[:2], seed=seed))

    async def playing() -> None:
        process = hub_of(consortium)
        await until_ready(process)
        hub = PlayedHub(consortium, asyncio.create_task(asyncio.sleep(0, "")), Said())
        for study in studies:
            await hub.submit(study)
            await hub.approve(study)
            await hub.until(study, StudyPhase.RUNNING)
        reached = {study: asyncio.Event() for study in studies}
        killed = asyncio.Event()
        sites = [
            asyncio.create_task(take_part(hub, study, name, reached[study], killed))
            for study in studies
            for name in SITES[:2]
        ]
        await asyncio.gather(*(each.wait() for each in reached.values()))
        process.kill()
        process.communicate(timeout=PATIENCE)
        again = hub_of(consortium)
        killed.set()
        try:
            await until_ready(again)
            await asyncio.gather(*sites)
            for study in studies:
                found = await hub.until(study, StudyPhase.FINISHED)
                assert found.result_digest
        finally:
            again.terminate()
            output, _ = again.communicate(timeout=PATIENCE)
        assert again.wait() == 4, output

    asyncio.run(playing())


async def take_part(hub: PlayedHub, study: str, name: str, reached: asyncio.Event, killed: asyncio.Event) -> None:
    """Take part, and wait before the answer to round 3 until the hub was killed."""
    federation = hub.federation(study)
    counted = 0

    async def before(_: object) -> None:
        nonlocal counted
        counted += 1
        if counted == 12:
            reached.set()
            await killed.wait()

    done = await federation.take_part(name, around=lambda worker: WatchedWorker(worker, before))
    assert done.rounds == 6
    assert killed.is_set()


def test_the_commands_carry_a_study_from_its_plan_to_its_result(tmp_path: Path) -> None:
    consortium = Consortium(tmp_path).made()
    consortium.hub.record.unlink()
    workspace = consortium.workspace("stroke", small_plan(rounds=2))
    (consortium.hub.path / FIRST_ACT).write_bytes(consortium.first)
    assert "has 7 members" in command(consortium.hub.path, "hub", "create")
    process = hub_of(consortium)
    bert = ["--folder", str(tmp_path / "bert"), "--cert-folder", str(consortium.certificates), "--name", "bert"]

    async def played_by_sites() -> None:
        hub = PlayedHub(consortium, asyncio.create_task(asyncio.sleep(0, "")), Said())
        await hub.approve("stroke")
        await hub.until("stroke", StudyPhase.RUNNING)
        await hub.federation("stroke").everybody()
        await hub.until("stroke", StudyPhase.FINISHED)

    try:
        asyncio.run(until_ready(process))
        assert "entry 2 of the record" in command(
            workspace.folder, "study", "submit", "plan/plan.yaml", "-s", "stroke", *bert
        )
        assert "entry 2 of the record" in command(
            workspace.folder, "study", "submit", "plan/plan.yaml", "-s", "stroke", *bert
        )
        assert "stroke: proposed" in command(tmp_path, "study", "status", *bert)
        asyncio.run(played_by_sites())
        (facts,) = json.loads(command(tmp_path, "study", "status", "stroke", "--json", *bert))
        assert (facts["phase"], facts["approved"]) == ("finished", ["clinic-a", "clinic-b", "clinic-c"])
        command(tmp_path, "study", "results", "stroke", *bert)
        assert json.loads((tmp_path / "results" / "stroke" / "result.json").read_text())["rounds"] == 2
        assert (tmp_path / "results" / "stroke" / "last.safetensors").exists()
        shown = command(tmp_path, "study", "record", *bert)
        assert re.search(r"7 acts, verified; the last entry is sha256:[0-9a-f]{64}", shown)
        # The lead makes an observer a researcher: a list that every member then has from the record.
        draft = tmp_path / "draft.yaml"
        present = (tmp_path / "anna" / "consortium.yaml").read_text(encoding="utf-8")
        changed = present.replace("number: 1", "number: 2").replace("role: observer", "role: researcher")
        draft.write_text(changed, encoding="utf-8")
        anna = [
            "--name",
            "anna",
            "--folder",
            str(tmp_path / "anna"),
            "--cert-folder",
            str(consortium.certificates),
        ]
        assert "list 2 of 7 members is in the record" in command(tmp_path, "hub", "members", str(draft), *anna)
        assert "8 acts, verified" in command(tmp_path, "study", "record", *bert)
        late = played(["-m", "fedfair.cli", "study", "withdraw", "stroke", *bert], tmp_path)
        assert late.returncode == 2
        assert "stroke is finished, so it cannot be withdrawn now (check: phase)" in late.stdout
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE)
    assert ActKind.MEMBERS.value in shown


def test_the_lead_signs_the_first_list_for_the_operator_of_the_hub(tmp_path: Path) -> None:
    consortium = Consortium(tmp_path).made()
    draft = tmp_path / "draft.yaml"
    draft.write_bytes((tmp_path / "anna" / "consortium.yaml").read_bytes())
    (tmp_path / "new").mkdir()
    new = ["--folder", str(tmp_path / "new"), "--cert-folder", str(consortium.certificates), "--name"]
    assert "both are for the hub's operator" in command(tmp_path, "hub", "members", str(draft), *new, "anna")
    consortium.hub.record.unlink()
    for file in (FIRST_ACT, "consortium.yaml"):
        (consortium.hub.path / file).write_bytes((tmp_path / "new" / file).read_bytes())
    assert "has 7 members" in command(consortium.hub.path, "hub", "create")
    again = played(["-m", "fedfair.cli", "hub", "create"], consortium.hub.path)
    assert (again.returncode, "this is a hub already" in again.stdout) == (2, True)
    (tmp_path / "new" / "consortium.yaml").unlink()
    usurped = played(["-m", "fedfair.cli", "hub", "members", str(draft), *new, "bert"], tmp_path)
    assert (usurped.returncode, "is not signed by the lead, anna" in usurped.stdout) == (2, True)
