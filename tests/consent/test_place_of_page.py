"""Where the page may be, by which names a request may call it, and its command under TLS, as a real process."""

import http.client
import signal
import ssl
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
import typer

from collaborator.consent_page.place import is_named, names_of, page_place
from fedfair.cli.loopback import issue_all
from fedfair.errors import IdentityError
from tests.fork_server import ENVIRONMENT

LISTEN = "127.0.0.1:0"


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the certificate of a host."""
    folder = tmp_path_factory.mktemp("cert")
    issue_all(folder, "heart", ("clinic-a",), ["localhost", "inbox.example.org"], datetime.now(UTC))
    return folder


@pytest.mark.parametrize("place", ["0.0.0.0:8750", "[::]:1", "inbox.example.org:8750", "192.0.2.7:0"])
def test_no_passphrase_crosses_a_network_in_the_clear(place: str) -> None:
    with pytest.raises(IdentityError, match="passphrases would cross the network"):
        page_place(place, None, None)


@pytest.mark.parametrize("place", ["", "localhost", "localhost:x", "localhost:70000"])
def test_words_that_are_no_place_of_a_page_are_refused(place: str) -> None:
    with pytest.raises(typer.BadParameter):
        page_place(place, None, None)


def test_the_certificate_of_a_page_has_its_key(tmp_path: Path) -> None:
    for certificate, key in ((tmp_path, None), (None, tmp_path)):
        with pytest.raises(IdentityError, match="is given without"):
            page_place("localhost:0", certificate, key)


def test_a_page_is_called_by_the_names_of_its_certificate(identity: Path) -> None:
    certificate, key = identity / "aggregator" / "tls.crt", identity / "aggregator" / "tls.key"
    names = names_of(page_place("0.0.0.0:8750", certificate, key))
    for host in ("inbox.example.org:8750", "INBOX.example.org", "localhost", "[::1]:8750", "[0:0::1]"):
        assert is_named(names, host)
    for host in ("example.org", "evil.example", "192.0.2.7:8750", "", ":8750", "inbox.example.org.evil.example"):
        assert not is_named(names, host)
    assert not is_named(names_of(page_place(LISTEN, None, None)), "inbox.example.org")


def test_the_command_serves_the_page_under_tls_until_it_is_stopped(home: Path, identity: Path) -> None:
    stated = [
        f"--certificate={identity / 'aggregator' / 'tls.crt'}",
        f"--key={identity / 'aggregator' / 'tls.key'}",
    ]
    words = [sys.executable, "-m", "fedfair.cli", "inbox", "page", "--listen", LISTEN, *stated]
    process = subprocess.Popen(words, cwd=home, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip().removeprefix("log in once with https://127.0.0.1:")
        port, _, link = address.partition("/")
        context = ssl.create_default_context(cafile=identity / "authority" / "ca.crt")
        connection = http.client.HTTPSConnection("localhost", int(port), context=context)
        connection.request("POST", f"/{link}", "")
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 303
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith("__Host-fedfair=")
        assert "Secure" in cookie
        assert answer.headers["strict-transport-security"]
        connection.request("GET", "/", headers={"Cookie": cookie.partition(";")[0]})
        page = connection.getresponse().read().decode()
        assert "age-2" in page
        connection.close()
        # The next link is shown to whoever sits at the terminal.
        assert process.stdout.readline().startswith("log in once with https://")
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 130
        process.stdout.close()  # type: ignore[union-attr]
