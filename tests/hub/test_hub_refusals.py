"""What a member may not do, and what a stranger may not: each is refused by a named check, and nothing is kept."""

import asyncio
import hashlib
from collections.abc import Awaitable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509

from collaborator.standing.service import unfollowed
from fedfair.consortium.acts import Act, ActKind, sign_act
from fedfair.consortium.studies import StudyPhase
from fedfair.errors import FedfairError, UnreachableError
from fedfair.identity.authority import CERTIFICATE_DAYS
from fedfair.identity.authority_store import issue, load_authority
from fedfair.identity.preflight import preflight
from fedfair.identity.request import parse_request
from fedfair.identity.store import install_certificate, load_signing_key, renew_site
from fedfair.news.standing import HubUnreachable, RecordRefused
from fedfair.wire.calling import Address
from fedfair.wire.hub_client import HubClient, HubRefusalError
from fedfair.workspace.archive import pack
from tests.hub.hub_kit import HEART, Consortium, PlayedHub, play
from tests.interop.own_folders import revoke_name
from tests.plans import small_plan


@pytest.fixture
def consortium(tmp_path: Path) -> Consortium:
    made = Consortium(tmp_path).made()
    made.workspace("stroke", small_plan(rounds=1))
    return made


async def refused(doing: Awaitable[object]) -> str:
    """Return the check by which the hub refuses a call."""
    with pytest.raises(HubRefusalError) as caught:
        await doing
    return caught.value.check


def client(consortium: Consortium, name: str) -> HubClient:
    return HubClient(Address("localhost", consortium.port), lambda: consortium.identity(name))


def shown(consortium: Consortium) -> x509.Certificate:
    """Return the certificate that the hub shows to a new connection."""
    found = preflight("localhost", consortium.port, consortium.identity("bert"), datetime.now(UTC))
    return x509.load_pem_x509_certificate(found.leaf_pem)


def signed(consortium: Consortium, key: str, **fields: object) -> bytes:
    """Return an act that no honest member's line would post."""
    told: dict[str, object] = {"federation": HEART, "by": key, "at": "2026-01-01", "study": "stroke"}
    told |= {"plan_digest": bytes(32), "words": "", "kind": ActKind.WITHDRAWN}
    return sign_act(Act(**{**told, **fields}), load_signing_key(consortium.certificates, key))  # type: ignore[arg-type]


def test_a_hostile_researcher_gets_nothing(consortium: Consortium) -> None:
    other = consortium.workspace("other", small_plan(rounds=2))

    async def scenario(hub: PlayedHub) -> None:
        await hub.submit("stroke")
        study = await hub.until("stroke", StudyPhase.PROPOSED)
        plan = study.submitted.plan_digest
        raw = pack(other.folder)
        own = {**submission(study.submitted), "study": "mine"}
        async with client(consortium, "carl") as carl, consortium.line("carl") as line:
            await line.follow()
            digest = await carl.bring(raw)
            brought = {"archive_digest": digest, "archive_bytes": len(raw)}
            # A foreign study: withdrawn, approved, its name taken, its archive read.
            assert await refused(carl.post(signed(consortium, "carl", plan_digest=plan))) == "role"
            assert (
                await refused(carl.post(signed(consortium, "carl", kind=ActKind.REFUSED, plan_digest=plan)))
                == "role"
            )
            taken = signed(consortium, "carl", **{**own, "study": "stroke", "plan_digest": bytes(32)})
            assert await refused(carl.post(taken)) == "study"
            assert await refused(carl.get(study.submitted.archive_digest, 0)) == "role"
            # An archive that is not here, not the one of its digest, not the plan's, or no archive.
            nothing = signed(consortium, "carl", **{**own, "plan_digest": bytes(32), "archive_digest": bytes(32)})
            assert await refused(carl.post(nothing)) == "archive"
            assert await refused(carl.put(bytes(32), 5, 0, b"other")) == "archive"
            other_plan = signed(consortium, "carl", **{**own, "plan_digest": bytes(32), **brought})
            assert await refused(carl.post(other_plan)) == "archive"
            garbage = b"PK garbage" * 100
            await carl.bring(garbage)
            told = {"archive_digest": hashlib.sha256(garbage).digest(), "archive_bytes": len(garbage)}
            assert (
                await refused(carl.post(signed(consortium, "carl", **{**own, "plan_digest": bytes(32), **told})))
                == "archive"
            )
            assert await refused(carl.put(bytes(32), 1 << 30, 0)) == "limit"
            # Another's act: forged, replayed, in another's name, by another past.
            forged = signed(consortium, "carl", by="bert", plan_digest=plan)
            assert await refused(carl.post(forged)) == "author"
            replayed = signed(consortium, "bert", plan_digest=plan)
            assert await refused(carl.post(replayed)) == "author"
            past = signed(consortium, "carl", seen=(1, bytes(32)), kind=ActKind.WITHDRAWN, plan_digest=plan)
            assert await refused(carl.post(past)) == "past"
            driven = signed(consortium, "carl", kind=ActKind.STARTED, plan_digest=plan)
            assert await refused(carl.post(driven)) == "role"
            assert await refused(carl.post(b"{}")) == "form"
            assert await refused(carl.acts(99)) == "past"
        async with client(consortium, "bert") as bert:
            lies = signed(consortium, "carl", by="bert", plan_digest=plan)
            assert await refused(bert.post(lies)) == "signature"
            # The same act again has no second effect, and is answered by the same entry.
            withdrawn = signed(consortium, "bert", plan_digest=plan)
            assert await bert.post(withdrawn) == await bert.post(withdrawn)
        await hub.until("stroke", StudyPhase.WITHDRAWN)
        assert len(list((consortium.hub.archives).glob("*.zip"))) == 1

    play(consortium, scenario)


def submission(act: Act) -> dict[str, object]:
    names = ("plan_digest", "archive_digest", "archive_bytes", "sites", "needed")
    return {"kind": ActKind.SUBMITTED, **{name: getattr(act, name) for name in names}}


def test_each_role_reads_and_does_what_it_may(consortium: Consortium) -> None:
    async def scenario(hub: PlayedHub) -> None:
        for name in ("dora", "clinic-a"):
            async with client(consortium, name) as member:
                assert await refused(member.put(bytes(32), 5, 0)) == "role"
        study = await hub.carried_out("stroke")
        archive, result = study.submitted.archive_digest, study.result_digest
        for name, (reads_archive, reads_result) in {
            "anna": (True, True), "bert": (True, True), "carl": (False, False), "dora": (False, False),
            "clinic-b": (True, True),
        }.items():  # fmt: skip
            async with client(consortium, name) as member:
                assert len(await member.acts(0)) == 7
                for digest, reads in ((archive, reads_archive), (result, reads_result)):
                    if reads:
                        assert (await member.get(digest, 0)).data
                    else:
                        assert await refused(member.get(digest, 0)) == "role"

    play(consortium, scenario)


def test_who_has_a_certificate_and_is_no_member_or_has_not_bound_it_is_refused(consortium: Consortium) -> None:
    async def scenario(_: PlayedHub) -> None:
        async with client(consortium, "stranger") as stranger:
            assert await refused(stranger.acts(0)) == "author"
        key = load_signing_key(consortium.certificates, "carl")
        stolen = HubClient(
            Address("localhost", consortium.port), lambda: replace(consortium.identity("bert"), signing_key=key)
        )
        async with stolen:
            assert await refused(stolen.acts(0)) == "author"

    play(consortium, scenario)


def test_an_upload_that_was_broken_off_is_continued(consortium: Consortium) -> None:
    raw = b"x" * 3_000_000

    async def scenario(_: PlayedHub) -> None:
        digest = hashlib.sha256(raw).digest()
        async with client(consortium, "bert") as bert:
            assert await bert.put(digest, len(raw), 0, raw[: 1 << 20]) == 1 << 20
        async with client(consortium, "bert") as bert:
            assert await bert.put(digest, len(raw), 0, raw[:10]) == 1 << 20
            assert await bert.bring(raw) == digest
            assert await bert.put(digest, len(raw), 0) == len(raw)

    play(consortium, scenario)


def test_news_wakes_who_waits_for_it(consortium: Consortium) -> None:
    async def scenario(hub: PlayedHub) -> None:
        async with client(consortium, "dora") as dora:
            waiting = asyncio.create_task(dora.acts(1, 60))
            await hub.submit("stroke")
            assert len(await waiting) == 1

    play(consortium, scenario)


def test_a_fetch_that_was_broken_off_is_continued_and_another_file_is_refused(
    consortium: Consortium, tmp_path: Path
) -> None:
    async def scenario(hub: PlayedHub) -> None:
        await hub.submit("stroke")
        act = (await hub.until("stroke", StudyPhase.PROPOSED)).submitted
        path = tmp_path / "archive.zip"
        kept = consortium.hub.archive(act.archive_digest)
        content = kept.read_bytes()
        async with client(consortium, "clinic-a") as site:
            path.with_name("archive.zip.part").write_bytes(content[:100])
            await site.fetch(act.archive_digest, act.archive_bytes, path)
            assert path.read_bytes() == content
            kept.write_bytes(content[:-1] + b"?")
            with pytest.raises(FedfairError, match="where it announced"):
                await site.fetch(act.archive_digest, act.archive_bytes, tmp_path / "again.zip")
            kept.write_bytes(content + b"?")
            with pytest.raises(FedfairError, match="expected"):
                await site.fetch(act.archive_digest, act.archive_bytes, tmp_path / "again.zip")

    play(consortium, scenario)


def test_a_certificate_that_is_revoked_while_the_hub_runs_is_refused_at_once(consortium: Consortium) -> None:
    async def scenario(_: PlayedHub) -> None:
        async with client(consortium, "carl") as carl:
            assert len(await carl.acts(0)) == 1
            revoke_name(consortium.certificates, "carl")
            assert await refused(carl.acts(0)) == "author"
            # A line that was refused takes up the certificate that this side has got meanwhile.
            now, folder = datetime.now(UTC), consortium.certificates
            asked = parse_request(renew_site(folder, "carl"))
            authority = load_authority(folder, now, None)
            install_certificate(folder, issue(folder, authority, asked, hosts=(), now=now, days=CERTIFICATE_DAYS))
            assert len(await carl.acts(0)) == 1
        async with client(consortium, "bert") as bert:
            assert len(await bert.acts(0)) == 1

    play(consortium, scenario)


def test_a_certificate_of_the_hub_that_was_renewed_is_shown_from_then_on(consortium: Consortium) -> None:
    async def scenario(hub: PlayedHub) -> None:
        folder, before = consortium.certificates, await asyncio.to_thread(shown, consortium)
        asked = parse_request(renew_site(folder, "aggregator"))
        authority = load_authority(folder, datetime.now(UTC), None)
        now = datetime.now(UTC)
        made = issue(folder, authority, asked, hosts=["localhost"], now=now, days=CERTIFICATE_DAYS)
        install_certificate(folder, made)
        await hub.said.until("a renewed certificate is shown")
        assert await asyncio.to_thread(shown, consortium) == made != before
        async with client(consortium, "bert") as bert:
            assert len(await bert.acts(0)) == 1

    play(consortium, scenario)


def test_a_member_that_has_seen_more_than_the_hub_has_is_told_so(consortium: Consortium) -> None:
    async def scenario(_: PlayedHub) -> None:
        async with client(consortium, "clinic-a") as site:
            with pytest.raises(HubRefusalError) as caught:
                await site.acts(7)
        told = unfollowed(caught.value, 3.0)
        assert isinstance(told, RecordRefused)
        assert told.sentence.startswith(
            "the record of the hub cannot be followed: you have 7 entries of the record"
        )
        assert "restored from an older copy" in told.sentence
        assert isinstance(unfollowed(UnreachableError("it is closed"), 3.0), HubUnreachable)

    play(consortium, scenario)
