"""Sites behind an HTTP proxy: what goes through it, what does not, and what is said when it does not work."""

import asyncio
import json
import socket
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import grpc
import pytest

from collaborator.egress import EgressRecord
from collaborator.link import open_link
from collaborator.participation import ParticipationTerms, driver_of, worker_of
from collaborator.preflight import CheckedStep, check_site
from collaborator.records import SiteLogs
from fedfair.cli.loopback import Workspace, prepare
from fedfair.errors import ConnectionRefusedByPeerError, FedfairError, IdentityError, UnreachableError
from fedfair.identity.authority import sign_request
from fedfair.identity.authority_store import load_authority
from fedfair.identity.preflight import preflight
from fedfair.identity.request import parse_request
from fedfair.identity.store import SiteIdentity, install_certificate, load_site_identity, renew_site
from fedfair.identity.tls import channel_credentials
from fedfair.news.processors import ignore
from fedfair.policy.proxy import choose_route
from fedfair.wire.calling import Address
from fedfair.wire.frames import Finished
from tests.fork_server import ENVIRONMENT, Process
from tests.interop.connect_proxy import ConnectProxy, running
from tests.interop.federation_kit import NAMES, Federation, play
from tests.interop.processes import Started, ended, start_everybody
from tests.patience import PATIENCE
from tests.plans import small_plan

HOST = "aggregator.example.test"
"""A name that only the proxy knows, as in a hospital."""

USER, PASSWORD = "clinic", "s3cret:@"
IN_URL = "clinic:s3cret%3A%40"


def named(folder: Path, rounds: int = 2) -> Workspace:
    """Prepare a federation whose aggregator has a certificate for `HOST` too."""
    workspace, now = prepare(folder, small_plan(rounds=rounds)), datetime.now(UTC)
    request = parse_request(renew_site(folder / "cert", "aggregator"))
    authority = load_authority(folder / "cert", now, None)
    install_certificate(folder / "cert", sign_request(authority, request, hosts=["localhost", HOST], now=now))
    return workspace


def address(setting: str, environment: Mapping[str, str] | None = None, port: int = 8443) -> Address:
    return Address(HOST, port, choose_route(HOST, port, setting, environment or {}))


def refusal(folder: Path, place: Address) -> FedfairError:
    with pytest.raises(FedfairError) as caught:
        preflight(place.host, place.port, identity(folder), datetime.now(UTC), PATIENCE, place.route)
    assert PASSWORD not in caught.value.diagnostics()
    assert "s3cret" not in caught.value.diagnostics()
    assert place.route.words in caught.value.message
    return caught.value


def identity(folder: Path) -> SiteIdentity:
    return load_site_identity(folder / "cert", "clinic-a", datetime.now(UTC))


async def take_part(federation: Federation, name: str, place: Address) -> Finished:
    ready, logs = federation.ready(name), federation.workspace.folder / "logs"
    answers, records = worker_of(ready, logs), SiteLogs(logs, name)
    try:
        with closing(EgressRecord(ready.site, ready.binding.digest)) as egress:
            return await driver_of(ready, answers, ParticipationTerms(place, logs), records, egress, ignore).run()
    finally:
        answers.close()
        records.close()


def test_sites_behind_a_proxy_that_wants_a_password_take_part_over_tls_to_the_aggregator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = named(tmp_path)
    # gRPC would take these for itself; the route says otherwise.
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", HOST)
    with running(ConnectProxy(credentials=f"{USER}:{PASSWORD}")) as proxy:

        async def everybody(federation: Federation) -> None:
            proxy.names = {HOST: federation.port}
            place = address(proxy.url(IN_URL))
            items = await asyncio.to_thread(
                check_site, federation.ready("clinic-a").site, lambda: place, federation.workspace.folder / "logs"
            )
            assert CheckedStep("connection", True, f"{place} over TLSv1.3, {place.route.words}") in items
            assert CheckedStep("aggregator", True, "answers") in items
            await asyncio.gather(*(take_part(federation, name, place) for name in NAMES))

        assert play(workspace, everybody).state.value == "finished"
        # A check and three sites, each with a connection of the preflight and one of gRPC.
        assert proxy.opened == 8
        assert set(proxy.asked) == {f"{HOST}:8443"}


@pytest.mark.slow
def test_a_real_process_finds_its_proxy_in_the_environment_and_in_its_own_file(
    tmp_path: Path, started: Started
) -> None:
    workspace = started.workspace = named(tmp_path)
    with running(ConnectProxy(credentials=f"{USER}:{PASSWORD}")) as proxy:
        environment = {**ENVIRONMENT, "https_proxy": proxy.url(IN_URL), "no_proxy": "localhost,.example.org"}
        file = workspace.folder / "clinic-b.yaml"
        file.write_text(file.read_text() + f"network: {{proxy: '{proxy.url(IN_URL)}'}}\n")
        others = {name: value for name, value in ENVIRONMENT.items() if not name.lower().endswith("_proxy")}

        def start(name: str, variables: Mapping[str, str]) -> Process:
            started.environment = dict(variables)
            words = ("-n", name, "-c", f"{name}.yaml", "-a", f"{HOST}:8443")
            return started.start("-m", "collaborator", "start", *words)

        async def everybody(federation: Federation) -> None:
            proxy.names = {HOST: federation.port}
            processes = [start("clinic-a", environment), start("clinic-b", others)]
            await federation.take_part("clinic-c")
            for process in processes:
                words, _ = await asyncio.to_thread(process.communicate, timeout=PATIENCE)
                assert process.returncode == 0, words
                assert "s3cret" not in words

        assert play(workspace, everybody).state.value == "finished"
        assert proxy.opened == 4


@pytest.mark.slow
def test_a_federation_of_one_machine_is_not_stopped_by_a_dead_proxy(tmp_path: Path, started: Started) -> None:
    names = ("https_proxy", "http_proxy", "grpc_proxy", "all_proxy", "HTTPS_PROXY", "ALL_PROXY")
    started.environment = ENVIRONMENT | dict.fromkeys(names, "http://127.0.0.1:1")
    started.workspace = prepare(tmp_path, small_plan(rounds=2))
    assert [ended(process)[0] for process in start_everybody(started)] == [0, 0, 0, 0]
    assert json.loads(started.workspace.result.read_text())["state"] == "finished"


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", ConnectionRefusedByPeerError, f"to {HOST}:8443 (status 403)"),
        (b"HTTP/1.0 302 Found\r\nLocation: /\r\n\r\n", ConnectionRefusedByPeerError, "(status 302)"),
        (b"HTTP/1.1 503 Busy\r\n\r\n", UnreachableError, f"could not connect to {HOST}:8443 (status 503)"),
        (b"HTTP/1.1 429\r\n\r\n", UnreachableError, "(status 429)"),
        (b"SSH-2.0-OpenSSH_9\r\n\r\n", UnreachableError, "does not answer like an HTTP proxy"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 20_000, UnreachableError, "does not answer like an HTTP proxy"),
    ],
)
def test_a_proxy_that_does_not_connect_a_site_is_named_with_its_answer(
    tmp_path: Path, answer: bytes, kind: type[FedfairError], words: str
) -> None:
    named(tmp_path)
    with running(ConnectProxy(answer=answer)) as proxy:
        fault = refusal(tmp_path, address("environment", {"https_proxy": proxy.url(IN_URL)}))
    assert type(fault) is kind
    assert words in fault.message
    assert fault.message.endswith(f"(through proxy http://127.0.0.1:{proxy.port} from https_proxy)")
    assert fault.remedy


def test_a_proxy_that_wants_a_password_says_whether_it_got_one(tmp_path: Path) -> None:
    named(tmp_path)
    with running(ConnectProxy(credentials="other:one")) as proxy:
        without = refusal(tmp_path, address(proxy.url()))
        wrong = refusal(tmp_path, address(proxy.url(IN_URL)))
    assert "wants a user and password (status 407)" in without.message
    assert "does not accept the user and password (status 407)" in wrong.message
    assert type(without) is type(wrong) is ConnectionRefusedByPeerError


def test_a_dead_proxy_and_an_aggregator_that_it_does_not_reach_may_be_tried_again(tmp_path: Path) -> None:
    named(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = int(server.getsockname()[1])
    dead = refusal(tmp_path, address(f"http://127.0.0.1:{port}"))
    assert dead.message.startswith(f"nothing listens at the proxy http://127.0.0.1:{port} (through proxy")
    with running(ConnectProxy()) as proxy:
        lost = refusal(tmp_path, address(proxy.url()))
    assert f"could not connect to {HOST}:8443 (status 502)" in lost.message
    unknown = refusal(tmp_path, address("http://proxy.invalid:3128"))
    assert unknown.message.startswith("the host name 'proxy.invalid' cannot be resolved here (through proxy")
    assert {type(dead), type(lost), type(unknown)} == {UnreachableError}


def test_a_direct_connection_that_fails_says_which_exception_made_it_direct(tmp_path: Path) -> None:
    named(tmp_path)
    environment = {"https_proxy": f"http://{IN_URL}@proxy:3128", "no_proxy": ".test"}
    fault = refusal(tmp_path, address("environment", environment))
    assert fault.message.endswith("(directly; https_proxy is set but no_proxy lists '.test')")


def test_a_proxy_that_opens_tls_is_refused_as_somebody_in_between(tmp_path: Path) -> None:
    named(tmp_path / "heart")
    stranger = named(tmp_path / "stranger")

    async def intercepted(federation: Federation) -> None:
        with running(ConnectProxy({HOST: federation.port})) as proxy:
            place = address(proxy.url())
            fault = await asyncio.to_thread(refusal, tmp_path / "heart", place)
        assert isinstance(fault, IdentityError)
        assert "was not signed by this federation's authority" in fault.message
        assert "a proxy that opens TLS connections" in fault.remedy
        await asyncio.gather(*(federation.take_part(name) for name in NAMES))

    assert play(stranger, intercepted).state.value == "finished"


def test_a_proxy_that_dies_after_the_preflight_is_named_by_the_stream(tmp_path: Path) -> None:
    workspace = named(tmp_path)

    async def dying(federation: Federation) -> None:
        ready = federation.ready("clinic-a")
        site = ready.site.identity()
        with running(ConnectProxy({HOST: federation.port})) as proxy:
            place = address(proxy.url())
            server = await asyncio.to_thread(
                preflight, place.host, place.port, site, datetime.now(UTC), PATIENCE, place.route
            )
        with closing(EgressRecord(ready.site, ready.binding.digest)) as egress:
            async with open_link(place, channel_credentials(site, server), egress, bytes(32)) as link:
                with pytest.raises(UnreachableError) as caught:
                    await anext(link.frames())
        assert f"the connection to {HOST}:8443 broke ({place.route.words}): " in caught.value.message
        await asyncio.gather(*(federation.take_part(name) for name in NAMES))

    assert play(workspace, dying).state.value == "finished"


def test_grpc_itself_takes_no_proxy_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    # What the rule rests on: without the option gRPC goes to the proxy of the environment, with it directly.
    from fedfair.wire.calling import CHANNEL_OPTIONS

    async def asked(options: tuple[tuple[str, int], ...]) -> list[str]:
        with running(ConnectProxy()) as proxy:
            monkeypatch.setenv("https_proxy", proxy.url())
            async with grpc.aio.secure_channel(
                "localhost:1", grpc.ssl_channel_credentials(), options=options
            ) as channel:
                with pytest.raises(grpc.aio.AioRpcError):
                    await channel.unary_unary("/x/y")(b"", timeout=PATIENCE)
            return proxy.asked

    assert asyncio.run(asked(())) != []
    assert asyncio.run(asked(CHANNEL_OPTIONS)) == []
