"""What happens to open streams when certificates and lists change on the disk: over real sockets."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fedfair.cli.loopback import Workspace, prepare
from fedfair.identity.certificate import fingerprint
from fedfair.identity.revocation import list_number
from fedfair.identity.store import load_site_identity, load_trust
from fedfair.wire.frames import Refused, TrustUpdate
from tests.interop.federation_kit import Federation, metrics, play
from tests.interop.own_folders import renew, revoke_name, with_own_folders
from tests.interop.test_streams import answered
from tests.plans import small_plan

MASKED = {"mode": "malicious", "most_records": 512}
PROTECTIONS = pytest.mark.parametrize("protection", [None, MASKED], ids=["plain", "masked"])


def made(folder: Path, rounds: int, protection: dict[str, object] | None, least: int = 3) -> Workspace:
    federation = {"min_collaborators": least}
    return prepare(folder, small_plan(rounds=rounds, federation=federation, protection=protection))


def numbers(workspace: Workspace, name: str) -> int:
    return list_number(load_trust(workspace.folder / "hosts" / name / "cert", datetime.now(UTC)).crl)


def test_a_revocation_ends_a_stream_that_waits_for_others_with_words(tmp_path: Path) -> None:
    workspace = made(tmp_path, 1, None, least=2)
    with_own_folders(workspace)

    async def nobody_else_comes(federation: Federation) -> None:
        async with federation.dial("clinic-c") as (link, hello):
            await link.send(hello)
            await answered(link, TrustUpdate)
            revoke_name(workspace.folder / "cert", "clinic-c")
            # No sum begins, no site sends anything, and still the stream ends.
            refused = await answered(link, Refused)
        assert "CN=clinic-c,O=heart' was revoked on" in refused.reason
        assert not refused.try_again
        assert not federation.watching.progress
        federation.serving.cancel()

    with pytest.raises(asyncio.CancelledError):
        play(workspace, nobody_else_comes)


@PROTECTIONS
def test_sites_get_a_new_list_over_their_streams_and_the_run_goes_on_without_the_revoked_site(
    tmp_path: Path, protection: dict[str, object] | None
) -> None:
    workspace = made(tmp_path, 400, protection, least=2)
    with_own_folders(workspace)

    async def one_is_revoked(federation: Federation) -> None:
        watching = federation.watching
        sites = {name: asyncio.create_task(federation.take_part(name)) for name in workspace.collaborators}
        await watching.until_round(2)
        revoke_name(workspace.folder / "cert", "clinic-c")
        await watching.until_said("clinic-c is disconnected: ")
        with pytest.raises(Exception, match="'CN=clinic-c,O=heart' was revoked on"):
            await sites.pop("clinic-c")
        last = watching.progress[-1].round
        await watching.until_round(last + 2)
        assert watching.progress[-1].contributors == 2
        federation.serving.cancel()
        for site in sites.values():
            site.cancel()
        await asyncio.gather(*sites.values(), return_exceptions=True)

    with pytest.raises(asyncio.CancelledError):
        play(workspace, one_is_revoked)
    assert [numbers(workspace, name) for name in ("clinic-a", "clinic-b")] == [2, 2]


@pytest.mark.parametrize(("protection", "whose"), [(MASKED, "clinic-b"), (None, "aggregator")])
def test_a_renewed_certificate_is_taken_up_between_two_sums_and_no_round_loses_a_site(
    tmp_path: Path, protection: dict[str, object] | None, whose: str
) -> None:
    workspace = made(tmp_path, 400, protection)
    folders = {**with_own_folders(workspace), "aggregator": workspace.folder / "cert"}

    async def renewed_while_running(federation: Federation) -> None:
        watching = federation.watching
        sites = {name: asyncio.create_task(federation.take_part(name)) for name in workspace.collaborators}
        await watching.until_round(2)
        renew(workspace.folder / "cert", folders[whose], whose)
        returning = ["clinic-b"] if whose == "clinic-b" else list(workspace.collaborators)
        for name in returning:
            await watching.until(lambda name=name: came(watching.notes, name) >= 2)  # type: ignore[misc]
        last = watching.progress[-1].round
        await watching.until_round(last + 2)
        assert {progress.contributors for progress in watching.progress} == {3}
        assert not any("dropped" in note or "lost" in note for note in watching.notes)
        federation.serving.cancel()
        for site in sites.values():
            site.cancel()
        await asyncio.gather(*sites.values(), return_exceptions=True)

    with pytest.raises(asyncio.CancelledError):
        play(workspace, renewed_while_running)
    rounds = [line["round"] for line in metrics(workspace) if line["purpose"] == "training"]
    assert rounds == list(range(1, len(rounds) + 1))


def came(notes: list[str], name: str) -> int:
    return sum(note in {f"{name} connected", f"{name} returned on a new stream"} for note in notes)


def test_a_stream_is_told_which_certificate_new_connections_are_shown(tmp_path: Path) -> None:
    workspace = made(tmp_path, 1, None)
    lead = workspace.folder / "cert"

    def present() -> bytes:
        return fingerprint(load_site_identity(lead, "aggregator", datetime.now(UTC)).certificate)

    async def renewed(federation: Federation) -> None:
        before = present()
        async with federation.dial("clinic-c") as (link, hello):
            await link.send(hello)
            assert (await answered(link, TrustUpdate)).certificate == before
            renew(lead, lead, "aggregator")
            assert present() != before
            assert (await answered(link, TrustUpdate)).certificate == present()
            async with federation.dial("clinic-b") as (other, its_hello):
                await other.send(its_hello)
                assert (await answered(other, TrustUpdate)).certificate == present()
        await asyncio.gather(*(federation.take_part(name) for name in workspace.collaborators))

    assert play(workspace, renewed).state.value == "finished"
