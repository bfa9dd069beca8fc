"""Several studies of one hub, each to its own end."""

import asyncio
import shutil
from dataclasses import replace
from pathlib import Path

from fedfair.consortium.studies import StudyPhase
from tests.hub.hub_kit import SITES, Consortium, PlayedHub, play
from tests.interop import federation_kit
from tests.plans import small_plan
from tests.transcript.signed_end import proven_end


def alone(consortium: Consortium, study: str) -> dict[str, bytes]:
    """Return the model that an aggregator of this one plan ends with, with the same sites."""
    made = consortium.workspaces[study].folder
    folder = made.with_name(f"{study}-alone")
    folder.mkdir()
    for each in ("plan", "approvals"):
        shutil.copytree(made / each, folder / each)
    for each in made.glob("*.yaml"):
        shutil.copy(each, folder)
    (folder / "cert").symlink_to(consortium.certificates)
    workspace = replace(consortium.workspaces[study], folder=folder)
    federation_kit.play(workspace, lambda federation: federation.everybody())
    return parameters(folder / "save" / "last.safetensors")


def parameters(path: Path) -> dict[str, bytes]:
    from safetensors.numpy import load_file

    return {name: values.tobytes() for name, values in load_file(path).items()}


def test_two_studies_at_once_end_as_each_does_alone(tmp_path: Path) -> None:
    # A sum of two is the same in either order.
    plans = {each: small_plan(rounds=3, names=SITES[:2], seed=seed) for seed, each in enumerate(("one", "two"))}
    consortium = Consortium(tmp_path / "of").made()
    for study, plan in plans.items():
        consortium.workspace(study, plan)

    async def scenario(hub: PlayedHub) -> None:
        await asyncio.gather(*(hub.carried_out(study) for study in plans))

    play(consortium, scenario)
    for study in plans:
        folder = consortium.hub.study(study)
        assert list(proven_end(folder / "save", consortium.workspaces[study].plan).signed) == list(SITES[:2])
        found = parameters(consortium.hub.study(study) / "save" / "last.safetensors")
        assert found == alone(consortium, study), study


def test_a_study_waits_for_its_turn(tmp_path: Path) -> None:
    consortium = Consortium(tmp_path).made(at_once=1)
    for study, seed in (("one", 1), ("two", 2)):
        consortium.workspace(study, small_plan(rounds=2, seed=seed))

    async def scenario(hub: PlayedHub) -> None:
        for study in ("one", "two"):
            await hub.submit(study)
            await hub.approve(study)
        await hub.until("one", StudyPhase.RUNNING)
        second = await hub.until("two", StudyPhase.READY)
        assert second.phase is StudyPhase.READY
        await hub.federation("one").everybody()
        await hub.until("two", StudyPhase.RUNNING)
        await hub.federation("two").everybody()
        await hub.until("two", StudyPhase.FINISHED)

    play(consortium, scenario)


def test_a_masked_study_runs_beside_one_in_the_clear(tmp_path: Path) -> None:
    consortium = Consortium(tmp_path).made()
    consortium.workspace("masked", small_plan(rounds=2, protection={"mode": "semi-honest"}))
    consortium.workspace("plain", small_plan(rounds=2))

    async def scenario(hub: PlayedHub) -> None:
        masked, plain = await asyncio.gather(hub.carried_out("masked"), hub.carried_out("plain"))
        assert masked.result_digest not in {plain.result_digest, b""}

    play(consortium, scenario)
