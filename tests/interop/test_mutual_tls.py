"""Every way in which two ends of a connection may not belong together, over real sockets on this machine."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread

import grpc
import pytest

from fedfair.errors import IdentityError, UnreachableError
from fedfair.identity import register
from fedfair.identity.authority import sign_request
from fedfair.identity.authority_store import load_authority, load_register, revoke
from fedfair.identity.certificate import fingerprint, parse_participant
from fedfair.identity.development import issue_all
from fedfair.identity.files import certificate_pem, read_certificate, read_tls_key
from fedfair.identity.preflight import ServerIdentity, preflight
from fedfair.identity.request import parse_request
from fedfair.identity.roster import Roster, bind_certificate, parse_roster, verify_binding
from fedfair.identity.store import (
    SiteIdentity,
    create_site,
    install_certificate,
    load_signing_key,
    load_site_identity,
    load_trust,
    renew_site,
)
from fedfair.identity.tls import RenewableCertificate, authenticate, channel_credentials
from fedfair.ids import FederationName
from tests.patience import PATIENCE

NOW = datetime.now(UTC)
HEART = FederationName("heart")
HOSTS = ["localhost", "127.0.0.1"]
METHOD = "/fedfair.test/WhoAmI"


class Hospital:
    """One `cert` folder that holds a whole federation, and what a test does to it."""

    def __init__(self, folder: Path, federation: str = "heart") -> None:
        self.folder = folder
        self.keys = dict(issue_all(folder, federation, ["clinic-a", "clinic-b"], HOSTS, NOW))

    @property
    def roster(self) -> Roster:
        return parse_roster(self.keys)

    def identity(self, name: str) -> SiteIdentity:
        return load_site_identity(self.folder, name, NOW)

    def unchecked(self, name: str) -> SiteIdentity:
        """The identity of a site that looks at nothing before it connects."""
        site = self.folder / name
        certificate = read_certificate(site / "tls.crt", name)
        participant = parse_participant("heart", name)
        key = read_tls_key(site / "tls.key", name)
        trust = load_trust(self.folder, NOW)
        return SiteIdentity(site, participant, certificate, key, load_signing_key(self.folder, name), trust, ())

    def sign(self, request: bytes, now: datetime = NOW, days: int = 365, hosts: tuple[str, ...] = ()) -> None:
        authority = load_authority(self.folder, NOW, None)
        certificate = sign_request(authority, parse_request(request), hosts=hosts, now=now, days=days)
        install_certificate(self.folder, certificate)

    def revoke(self, name: str) -> None:
        issued = register.latest_of(load_register(self.folder), name)
        assert issued is not None
        revoke(self.folder, load_authority(self.folder, NOW, None), frozenset({issued.serial}), NOW)


@pytest.fixture
def heart(tmp_path: Path) -> Hospital:
    return Hospital(tmp_path / "heart")


@asynccontextmanager
async def service(hospital: Hospital, credentials: grpc.ServerCredentials | None = None) -> AsyncIterator[int]:
    """Serve one method, as the aggregator does: authenticate, verify the binding, answer; yields the port."""

    async def who_am_i(binding: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        trust = load_trust(hospital.folder, NOW)
        auth_context: Mapping[str, list[bytes]] = context.auth_context()
        try:
            peer = authenticate(
                auth_context, federation=HEART, roster=hospital.roster, ca=trust.ca, crl=trust.crl, now=NOW
            )
            verify_binding(
                binding,
                public_key=hospital.roster[peer.name],
                certificate_fingerprint=peer.certificate_fingerprint,
                federation=HEART,
                name=peer.name,
            )
        except IdentityError as error:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, error.message)
        return b" ".join([peer.name.encode(), auth_context["ssl_tls_version"][0]])

    handler = grpc.unary_unary_rpc_method_handler(who_am_i)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("fedfair.test", {"WhoAmI": handler}),))
    port = server.add_secure_port(
        "127.0.0.1:0", credentials or RenewableCertificate(hospital.identity("aggregator")).credentials()
    )
    await server.start()
    try:
        yield port
    finally:
        await server.stop(0)


async def ask(port: int, site: SiteIdentity, server: ServerIdentity) -> bytes:
    binding = bind_certificate(site.signing_key, fingerprint(site.certificate), HEART, site.participant.name)
    async with grpc.aio.secure_channel(f"127.0.0.1:{port}", channel_credentials(site, server)) as channel:
        return await channel.unary_unary(METHOD)(binding, timeout=PATIENCE)


def connect(hospital: Hospital, site: SiteIdentity) -> bytes:
    """Do what a collaborator does: preflight, then the call; return the service's answer."""

    async def run() -> bytes:
        async with service(hospital) as port:
            server = await asyncio.to_thread(preflight, "127.0.0.1", port, site, NOW, PATIENCE)
            assert server.tls_version == "TLSv1.3"
            return await ask(port, site, server)

    return asyncio.run(run())


def refusal_by_service(hospital: Hospital, site: SiteIdentity) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        connect(hospital, site)
    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
    return caught.value.details() or ""


def refusal_in_preflight(site: SiteIdentity, hospital: Hospital, served_as: SiteIdentity | None = None) -> str:
    async def run() -> None:
        shown = RenewableCertificate(served_as or hospital.identity("aggregator"))
        async with service(hospital, shown.credentials()) as port:
            await asyncio.to_thread(preflight, "127.0.0.1", port, site, NOW, PATIENCE)

    with pytest.raises(IdentityError) as caught:
        asyncio.run(run())
    return caught.value.message


# ------------------------------------------------------------------ who is let in


def test_a_member_is_recognised_over_tls_1_3(heart: Hospital) -> None:
    assert connect(heart, heart.identity("clinic-a")) == b"clinic-a TLSv1.3"


def test_a_renewed_certificate_is_accepted_without_a_change_of_the_plan(heart: Hospital) -> None:
    before = heart.identity("clinic-a").certificate
    heart.sign(renew_site(heart.folder, "clinic-a"))
    after = heart.identity("clinic-a").certificate
    assert after.public_key() != before.public_key()
    assert connect(heart, heart.identity("clinic-a")) == b"clinic-a TLSv1.3"


def test_a_renewed_certificate_of_the_aggregator_is_accepted(heart: Hospital) -> None:
    heart.sign(renew_site(heart.folder, "aggregator"), hosts=tuple(HOSTS))
    assert connect(heart, heart.identity("clinic-b")) == b"clinic-b TLSv1.3"


# ------------------------------------------------------------------ the service refuses a client


def test_a_revoked_collaborator_is_refused_by_the_service(heart: Hospital) -> None:
    heart.revoke("clinic-a")
    message = refusal_by_service(heart, heart.unchecked("clinic-a"))
    assert "CN=clinic-a,O=heart' was revoked on" in message
    assert connect(heart, heart.identity("clinic-b")) == b"clinic-b TLSv1.3"


def test_the_right_authority_is_not_enough_without_a_place_in_the_roster(heart: Hospital) -> None:
    heart.sign(create_site(heart.folder, parse_participant("heart", "clinic-c")))
    message = refusal_by_service(heart, heart.identity("clinic-c"))
    assert "clinic-c has a certificate of this federation but is not in the roster" in message


def test_an_impostor_with_a_certificate_of_the_authority_but_another_signing_key_is_refused(
    heart: Hospital, tmp_path: Path
) -> None:
    # What a rogue authority can do: sign a certificate in a member's name for keys of its own.
    impostor = Hospital(tmp_path / "impostor")
    request = parse_request(renew_site(impostor.folder, "clinic-a"))
    authority = load_authority(heart.folder, NOW, None)
    install_certificate(impostor.folder, sign_request(authority, request, hosts=(), now=NOW))
    site = replace(impostor.unchecked("clinic-a"), trust=heart.identity("clinic-a").trust)
    message = refusal_by_service(heart, site)
    assert "that the signing key pinned for clinic-a in the plan has not bound" in message


def test_a_member_cannot_show_another_member_s_binding(heart: Hospital) -> None:
    # clinic-b knows clinic-a's binding, and connects with its own certificate.
    other = heart.identity("clinic-a")
    stolen = bind_certificate(other.signing_key, fingerprint(other.certificate), HEART, other.participant.name)

    async def run() -> None:
        async with service(heart) as port:
            site = heart.identity("clinic-b")
            server = await asyncio.to_thread(preflight, "127.0.0.1", port, site, NOW, PATIENCE)
            async with grpc.aio.secure_channel(f"127.0.0.1:{port}", channel_credentials(site, server)) as channel:
                await channel.unary_unary(METHOD)(stolen, timeout=PATIENCE)

    with pytest.raises(grpc.aio.AioRpcError, match="pinned for clinic-b in the plan has not bound"):
        asyncio.run(run())


# ------------------------------------------------------------------ the handshake refuses a client


def test_a_certificate_of_another_authority_is_refused_by_the_server(heart: Hospital, tmp_path: Path) -> None:
    stranger = Hospital(tmp_path / "stranger").identity("clinic-a")
    site = replace(stranger, trust=heart.identity("clinic-a").trust)
    assert "is the aggregator, but it refused this site's certificate" in refusal_in_preflight(site, heart)


def test_an_expired_certificate_is_refused_by_the_server(heart: Hospital) -> None:
    heart.sign(renew_site(heart.folder, "clinic-a"), NOW - timedelta(days=10), days=1)
    message = refusal_in_preflight(heart.unchecked("clinic-a"), heart)
    assert "is the aggregator, but it refused this site's certificate" in message


def test_an_expired_certificate_is_refused_at_home_before_anything_is_sent(heart: Hospital) -> None:
    heart.sign(renew_site(heart.folder, "clinic-a"), NOW - timedelta(days=10), days=1)
    with pytest.raises(IdentityError, match="the certificate of clinic-a expired on"):
        heart.identity("clinic-a")


def test_the_aggregator_s_certificate_cannot_be_used_by_a_client(heart: Hospital) -> None:
    message = refusal_in_preflight(heart.identity("aggregator"), heart)
    assert "is the aggregator, but it refused this site's certificate" in message


def test_a_client_without_a_certificate_does_not_reach_the_service(heart: Hospital) -> None:
    site = heart.identity("clinic-a")
    server = ServerIdentity(certificate_pem(heart.identity("aggregator").certificate), "TLSv1.3")

    async def run() -> grpc.StatusCode | None:
        async with service(heart) as port:
            # The certificate is all that tells the two calls apart.
            assert await ask(port, site, server) == b"clinic-a TLSv1.3"
            nameless = grpc.ssl_channel_credentials(server.leaf_pem)
            async with grpc.aio.secure_channel(f"127.0.0.1:{port}", nameless) as channel:
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await channel.unary_unary(METHOD)(b"", timeout=PATIENCE)
            return caught.value.code()

    assert asyncio.run(run()) is grpc.StatusCode.UNAVAILABLE


def test_a_client_in_plain_text_does_not_reach_the_service(heart: Hospital) -> None:
    async def run() -> None:
        async with service(heart) as port, grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            await channel.unary_unary(METHOD)(b"", timeout=PATIENCE)

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        asyncio.run(run())
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


# ------------------------------------------------------------------ TLS 1.2


def test_a_connection_of_tls_1_2_is_refused_by_the_service(heart: Hospital) -> None:
    # gRPC cannot be told to refuse 1.2 in the handshake, and its own clients cannot be limited to it.
    async def run() -> bytes:
        async with service(heart) as port:
            return await asyncio.to_thread(call_over_tls_1_2, heart, port)

    answer = asyncio.run(run())
    assert b"the connection uses TLSv1.2, this service speaks TLSv1.3 only" in answer


def call_over_tls_1_2(hospital: Hospital, port: int) -> bytes:
    """Make one gRPC call in HTTP/2 frames written by hand; return everything that came back."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["h2"])
    context.load_verify_locations(cadata=certificate_pem(load_trust(hospital.folder, NOW).ca).decode())
    context.load_cert_chain(hospital.folder / "clinic-a" / "tls.crt", hospital.folder / "clinic-a" / "tls.key")
    fields = {
        ":method": "POST",
        ":scheme": "https",
        ":path": METHOD,
        ":authority": "localhost",
        "te": "trailers",
        "content-type": "application/grpc",
    }
    # RFC 7541, section 6.2.2: literals without indexing and without Huffman coding.
    block = b"".join(b"\0" + _literal(name) + _literal(value) for name, value in fields.items())
    message = b"\0" + (0).to_bytes(4, "big")
    answer = b""
    with (
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as connection,
    ):
        assert connection.version() == "TLSv1.2"
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(4, 0, 0, b""))
        connection.sendall(_frame(1, 0x4, 1, block) + _frame(0, 0x1, 1, message))
        while b"grpc-message" not in answer:
            received = connection.recv(65536)
            if not received:
                break
            answer += received
    # The trailer is percent-encoded where a character is not printable ASCII; these words are.
    return answer


def _literal(text: str) -> bytes:
    return bytes([len(text)]) + text.encode("ascii")


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


# ------------------------------------------------------------------ the collaborator refuses a server


def test_a_server_of_another_authority_is_refused_by_the_collaborator(heart: Hospital, tmp_path: Path) -> None:
    stranger = Hospital(tmp_path / "stranger")
    message = refusal_in_preflight(heart.identity("clinic-a"), stranger)
    assert "was not signed by this federation's authority" in message


def test_an_expired_aggregator_is_refused_by_the_collaborator(heart: Hospital) -> None:
    heart.sign(renew_site(heart.folder, "aggregator"), NOW - timedelta(days=10), days=1, hosts=tuple(HOSTS))
    message = refusal_in_preflight(heart.identity("clinic-a"), heart, heart.unchecked("aggregator"))
    assert message.endswith("has expired (directly)")


def test_a_revoked_aggregator_is_refused_by_the_collaborator(heart: Hospital) -> None:
    heart.revoke("aggregator")
    message = refusal_in_preflight(heart.identity("clinic-a"), heart, heart.unchecked("aggregator"))
    assert "'CN=aggregator,O=heart' was revoked on" in message


def test_a_collaborator_s_certificate_cannot_be_used_by_a_server(heart: Hospital) -> None:
    message = refusal_in_preflight(heart.identity("clinic-a"), heart, heart.identity("clinic-b"))
    assert "may not be used by a server: it is a collaborator's" in message


def test_an_aggregator_under_another_name_than_its_certificate_s_is_refused(heart: Hospital) -> None:
    heart.sign(renew_site(heart.folder, "aggregator"), hosts=("agg.example.org",))
    message = refusal_in_preflight(heart.identity("clinic-a"), heart)
    assert "is not made for the name '127.0.0.1'" in message


def test_the_channel_trusts_only_the_server_certificate_that_preflight_checked(heart: Hospital) -> None:
    # The second server's certificate is as valid as the first one's, from the same authority, for the same hosts.
    checked = ServerIdentity(certificate_pem(heart.identity("aggregator").certificate), "TLSv1.3")
    heart.sign(renew_site(heart.folder, "aggregator"), hosts=tuple(HOSTS))
    with pytest.raises(grpc.aio.AioRpcError, match="CERTIFICATE_VERIFY_FAILED") as caught:
        call_without_preflight(heart, checked)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_the_channel_still_compares_the_host_name_of_the_certificate_it_trusts(heart: Hospital) -> None:
    heart.sign(renew_site(heart.folder, "aggregator"), hosts=("agg.example.org",))
    checked = ServerIdentity(certificate_pem(heart.identity("aggregator").certificate), "TLSv1.3")
    with pytest.raises(grpc.aio.AioRpcError, match="Hostname Verification Check failed"):
        call_without_preflight(heart, checked)


def call_without_preflight(hospital: Hospital, server: ServerIdentity) -> bytes:
    async def run() -> bytes:
        async with service(hospital) as port:
            return await ask(port, hospital.identity("clinic-a"), server)

    return asyncio.run(run())


# ------------------------------------------------------------------ something else answers


@contextmanager
def listener(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """Accept connections one after the other, and let `answer` deal with each; yields the port."""

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(PATIENCE)
                with suppress(OSError):
                    answer(connection)

    server = socket.create_server(("127.0.0.1", 0))
    port = int(server.getsockname()[1])
    thread = Thread(target=serve)
    thread.start()
    try:
        yield port
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join(PATIENCE)


def server_context(hospital: Hospital) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(hospital.folder / "aggregator" / "tls.crt", hospital.folder / "aggregator" / "tls.key")
    return context


def test_a_server_that_speaks_only_tls_1_2_is_refused(heart: Hospital) -> None:
    context = server_context(heart)
    context.maximum_version = ssl.TLSVersion.TLSv1_2

    def answer(connection: socket.socket) -> None:
        context.wrap_socket(connection, server_side=True).close()

    with listener(answer) as port, pytest.raises(IdentityError, match=r"does not speak TLS 1\.3"):
        preflight("127.0.0.1", port, heart.identity("clinic-a"), NOW, PATIENCE)


def test_a_server_without_tls_is_named_as_such(heart: Hospital) -> None:
    def answer(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with listener(answer) as port, pytest.raises(IdentityError, match=r"does not speak TLS \(directly\)$"):
        preflight("127.0.0.1", port, heart.identity("clinic-a"), NOW, PATIENCE)


def test_an_alert_about_the_client_s_certificate_is_put_into_words(heart: Hospital, tmp_path: Path) -> None:
    context = server_context(heart)
    context.verify_mode = ssl.CERT_REQUIRED
    stranger = load_trust(Hospital(tmp_path / "stranger").folder, NOW).ca
    context.load_verify_locations(cadata=certificate_pem(stranger).decode())

    def answer(connection: socket.socket) -> None:
        context.wrap_socket(connection, server_side=True).close()

    with listener(answer) as port, pytest.raises(IdentityError, match=r"refused this site's certificate: \w+"):
        preflight("127.0.0.1", port, heart.identity("clinic-a"), NOW, PATIENCE)


def test_an_address_where_nothing_listens_may_be_tried_again(heart: Hospital) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = int(server.getsockname()[1])
    with pytest.raises(UnreachableError, match="nothing listens at 127"):
        preflight("127.0.0.1", port, heart.identity("clinic-a"), NOW, PATIENCE)


def test_a_server_that_accepts_but_says_nothing_does_not_hold_a_collaborator_up(heart: Hospital) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        pytest.raises(UnreachableError, match="did not answer in TLS"),
    ):
        preflight("127.0.0.1", int(server.getsockname()[1]), heart.identity("clinic-a"), NOW, 0.2)


def test_a_server_that_dies_during_the_handshake_may_be_tried_again(heart: Hospital) -> None:
    with listener(socket.socket.close) as port, pytest.raises(UnreachableError, match="during the TLS handshake"):
        preflight("127.0.0.1", port, heart.identity("clinic-a"), NOW, PATIENCE)


def test_the_identity_that_was_loaded_is_shown_whatever_becomes_of_its_files(heart: Hospital) -> None:
    # An installation that is under way leaves a key beside the certificate of another one for a moment.
    site = heart.identity("clinic-a")
    (site.folder / "tls.key").unlink()
    assert connect(heart, site) == b"clinic-a TLSv1.3"


def test_a_key_that_is_kept_encrypted_is_never_on_the_disk_in_the_clear(
    heart: Hospital, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[bytes] = []
    load = ssl.SSLContext.load_cert_chain

    def looking(context: ssl.SSLContext, file: str, *words: str, **named: str) -> None:
        written.append(Path(file).read_bytes())
        load(context, file, *words, **named)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", looking)
    assert connect(heart, heart.identity("clinic-a")) == b"clinic-a TLSv1.3"
    assert written
    assert all(b"ENCRYPTED PRIVATE KEY" in content and b"BEGIN PRIVATE KEY" not in content for content in written)
