"""Where a status may be served: this machine alone, or with a certificate; everything else is refused in words."""

import socket
from datetime import UTC, datetime
from pathlib import Path

import pytest
import typer

from fedfair.errors import FedfairError, IdentityError
from fedfair.identity.development import issue_all
from fedfair.watching.place import StatusPlace, asked_place, is_loopback, status_place


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the certificate of an aggregator on localhost."""
    folder = tmp_path_factory.mktemp("cert")
    issue_all(folder, "heart", ("clinic-a",), ["localhost"], datetime.now(UTC))
    return folder


@pytest.mark.parametrize("place", ["localhost:9464", "127.0.0.1:0", "127.8.9.1:1", "[::1]:9464", "LOCALHOST:1"])
def test_this_machine_needs_no_certificate(place: str) -> None:
    assert status_place(place, None, None).tls_context() is None


@pytest.mark.parametrize("place", ["[::]:9464", "192.0.2.7:9464", "aggregator.example.org:9464"])
def test_a_place_that_others_can_reach_is_refused_without_a_certificate(place: str) -> None:
    with pytest.raises(IdentityError, match="can be reached by other machines") as refused:
        status_place(place, None, None)
    assert "--status-certificate and --status-key" in refused.value.remedy


@pytest.mark.parametrize("place", ["localhost", "9464", ":9464", "localhost:65536", "localhost:-1", ""])
def test_words_that_are_no_place_are_refused(place: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not HOST:PORT"):
        status_place(place, None, None)


def test_a_certificate_and_its_key_come_together(tmp_path: Path) -> None:
    with pytest.raises(IdentityError, match="--status-certificate is given without --status-key"):
        status_place("localhost:1", tmp_path, None)
    with pytest.raises(IdentityError, match="--status-key is given without --status-certificate"):
        status_place("localhost:1", None, tmp_path)
    with pytest.raises(IdentityError, match="no --status"):
        asked_place(None, tmp_path, tmp_path)
    assert asked_place(None, None, None) is None


def test_files_that_are_no_certificate_are_refused_before_anybody_listens(tmp_path: Path, identity: Path) -> None:
    certificate, key = identity / "aggregator" / "tls.crt", identity / "aggregator" / "tls.key"
    assert StatusPlace("192.0.2.7", 0, certificate, key).tls_context() is not None
    with pytest.raises(IdentityError, match="cannot be read: No such file"):
        StatusPlace("192.0.2.7", 0, tmp_path / "none.pem", key).tls_context()
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("nothing")
    with pytest.raises(IdentityError, match="cannot be used for the status"):
        StatusPlace("192.0.2.7", 0, nonsense, key).tls_context()
    with pytest.raises(IdentityError, match="cannot be used for the status"):
        StatusPlace("192.0.2.7", 0, certificate, identity / "clinic-a" / "tls.key").tls_context()


def test_a_place_that_is_taken_is_refused_in_words() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        place = StatusPlace("127.0.0.1", other.getsockname()[1])
        with pytest.raises(FedfairError, match="the status cannot be served on") as refused:
            place.listener()
    assert "--status HOST:PORT" in refused.value.remedy


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:9464", "127.0.0.1:1", "[::1]:9464", "[::1]", "LocalHost"]
)
def test_this_machine_may_be_called_by_its_own_names(host: str) -> None:
    assert StatusPlace("localhost", 9464).is_named(host)


@pytest.mark.parametrize("host", ["evil.example", "evil.example:9464", "", "localhost.evil.example", "192.0.2.7"])
def test_a_name_that_somebody_has_pointed_to_this_machine_is_refused(host: str) -> None:
    assert not StatusPlace("localhost", 9464).is_named(host)


def test_with_a_certificate_the_certificate_says_the_name() -> None:
    assert StatusPlace("192.0.2.7", 9464, Path("a"), Path("b")).is_named("aggregator.example.org:9464")


@pytest.mark.parametrize(
    ("host", "own"), [("::1", True), ("127.255.0.1", True), ("localhost", True), ("192.0.2.7", False)]
)
def test_what_only_this_machine_reaches(host: str, own: bool) -> None:
    assert is_loopback(host) is own
