from __future__ import annotations

import json
import re
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedfair.cli.certs import app
from fedfair.errors import IdentityError
from fedfair.identity.development import issue_all
from fedfair.identity.store import load_site_identity, load_trust

RUNNER = CliRunner()
FINGERPRINT = re.compile(r"(?:[0-9a-f]{4} ){15}[0-9a-f]{4}")


class Host:
    """One machine: commands run in its folder."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder.mkdir()
        self.folder = folder
        self._monkeypatch = monkeypatch

    def run(self, *words: str, typed: str | None = None) -> str:
        """Run `fedfair certs ...` and return what it printed."""
        self._monkeypatch.chdir(self.folder)
        result = RUNNER.invoke(app, list(words), input=typed, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.output

    def refused(self, *words: str, typed: str | None = None) -> IdentityError:
        """Run `fedfair certs ...` and return the error that the command line would print."""
        with pytest.raises(IdentityError) as caught:
            self.run(*words, typed=typed)
        return caught.value

    def receive(self, sender: Host, file: str) -> None:
        (self.folder / Path(file).name).write_bytes((sender.folder / file).read_bytes())


@pytest.fixture
def lead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    host = Host(tmp_path / "lead", monkeypatch)
    host.run("authority", "--federation", "heart")
    return host


@pytest.fixture
def clinic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(tmp_path / "clinic", monkeypatch)


def join(lead: Host, clinic: Host) -> None:
    clinic.run("request", "-n", "clinic-a", "-f", "heart")
    lead.receive(clinic, "clinic-a.request.json")
    lead.run("sign", "clinic-a.request.json", "--yes")
    clinic.receive(lead, "clinic-a.certificate.pem")
    clinic.run("install", "clinic-a.certificate.pem", "--yes")


def fingerprint_in(output: str) -> str:
    found = FINGERPRINT.findall(output)
    assert len(found) == 1
    return str(found[0])


def test_a_site_gets_its_certificate_in_three_steps_on_two_hosts(lead: Host, clinic: Host) -> None:
    asked = clinic.run("request", "-n", "clinic-a", "-f", "heart")
    assert (
        "next: send clinic-a.request.json to the authority's operator, and read them the fingerprint by phone"
        in asked
    )
    lead.receive(clinic, "clinic-a.request.json")
    signed = lead.run("sign", "clinic-a.request.json", typed="y\n")
    assert fingerprint_in(signed) == fingerprint_in(asked)
    assert "who runs: fedfair certs install clinic-a.certificate.pem" in signed
    pinned = (clinic.folder / "cert" / "clinic-a" / "signing.pub").read_text().strip()
    assert f"for federation.roster in the plan:  clinic-a: {pinned}" in signed
    clinic.receive(lead, "clinic-a.certificate.pem")
    installed = clinic.run("install", "clinic-a.certificate.pem", typed="y\n")
    assert "this is the first bundle here" in installed
    identity = load_site_identity(clinic.folder / "cert", "clinic-a", datetime.now(UTC))
    assert identity.participant.uri == "fedfair://heart/clinic-a"


def test_the_fingerprint_is_shown_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clinic: Host) -> None:
    lead = Host(tmp_path / "other-lead", monkeypatch)
    made = lead.run("authority", "-f", "heart")
    clinic.run("request", "-n", "clinic-a", "-f", "heart")
    lead.receive(clinic, "clinic-a.request.json")
    lead.run("sign", "clinic-a.request.json", "--yes")
    clinic.receive(lead, "clinic-a.certificate.pem")
    assert fingerprint_in(clinic.run("install", "clinic-a.certificate.pem", "--yes")) == fingerprint_in(made)


def test_a_refused_fingerprint_signs_and_installs_nothing(lead: Host, clinic: Host) -> None:
    clinic.run("request", "-n", "clinic-a", "-f", "heart")
    lead.receive(clinic, "clinic-a.request.json")
    assert lead.refused("sign", "clinic-a.request.json", typed="n\n").message == "nothing was signed"
    assert not (lead.folder / "clinic-a.certificate.pem").exists()
    assert not (lead.folder / "cert" / "authority" / "issued.jsonl").exists()
    lead.run("sign", "clinic-a.request.json", "--yes")
    clinic.receive(lead, "clinic-a.certificate.pem")
    error = clinic.refused("install", "clinic-a.certificate.pem", typed="n\n")
    assert error.message == "nothing was installed"
    assert not (clinic.folder / "cert" / "ca.crt").exists()


def test_on_the_authority_s_own_host_signing_installs_as_well(lead: Host) -> None:
    lead.run("request", "--name", "aggregator", "--role", "aggregator", "--federation", "heart")
    output = lead.run("sign", "aggregator.request.json", "--host", "agg.example.org", "--host", "10.0.0.5", "-y")
    assert "installed in cert/aggregator, as its key is here" in output
    assert "federation.roster" not in output
    load_site_identity(lead.folder / "cert", "aggregator", datetime.now(UTC))


def test_a_renewed_certificate_keeps_the_signing_key(lead: Host, clinic: Host) -> None:
    join(lead, clinic)
    before = load_site_identity(clinic.folder / "cert", "clinic-a", datetime.now(UTC))
    clinic.run("renew", "-n", "clinic-a")
    lead.receive(clinic, "clinic-a.request.json")
    lead.run("sign", "clinic-a.request.json", "--yes", "--days", "30")
    clinic.receive(lead, "clinic-a.certificate.pem")
    # The authority is known by now, so nothing is asked.
    clinic.run("install", "clinic-a.certificate.pem")
    after = load_site_identity(clinic.folder / "cert", "clinic-a", datetime.now(UTC))
    assert after.certificate != before.certificate
    assert after.signing_key.public_key() == before.signing_key.public_key()
    assert after.warnings[0].startswith("this site's certificate expires on")


def test_a_revocation_reaches_other_hosts_with_the_list(lead: Host, clinic: Host) -> None:
    join(lead, clinic)
    output = lead.run("revoke", "-n", "clinic-a", typed="y\n")
    assert "clinic-a, good until" in output
    assert "next: send cert/authority/revoked.crl to every other host" in output
    clinic.receive(lead, "cert/authority/revoked.crl")
    clinic.run("install", "revoked.crl")
    with pytest.raises(IdentityError, match="was revoked on"):
        load_site_identity(clinic.folder / "cert", "clinic-a", datetime.now(UTC))


def test_a_single_certificate_can_be_revoked_by_its_serial(lead: Host, clinic: Host) -> None:
    join(lead, clinic)
    listed = json.loads(lead.run("show", "--json"))["items"]
    serial = next(item["serial"] for item in listed if item["name"] == "clinic-a")
    lead.run("revoke", "--serial", serial, "--yes")
    assert load_trust(lead.folder / "cert", datetime.now(UTC)).crl.get_revoked_certificate_by_serial_number(
        int(serial, 16)
    )
    assert "revoked" in {item["status"] for item in json.loads(lead.run("show", "--json"))["items"]}


@pytest.mark.parametrize("words", [[], ["--refresh", "-n", "clinic-a"], ["-n", "clinic-a", "--serial", "1"]])
def test_revoking_needs_exactly_one_target(words: list[str]) -> None:
    result = RUNNER.invoke(app, ["revoke", *words])
    assert result.exit_code == 2
    assert "give one of --name, --serial and --refresh" in result.output


def test_revoking_nobody_is_refused_and_a_list_can_be_made_good_for_longer(lead: Host) -> None:
    assert lead.refused("revoke", "-n", "clinic-z", "-y").message == (
        "this authority has signed no certificate for clinic-z"
    )
    assert "with the serial ff" in lead.refused("revoke", "--serial", "ff", "-y").message
    path = lead.folder / "cert" / "authority" / "revoked.crl"
    before = path.read_bytes()
    lead.run("revoke", "--refresh")
    assert path.read_bytes() != before
    assert len(load_trust(lead.folder / "cert", datetime.now(UTC)).crl) == 0


def test_a_second_authority_is_refused_and_an_unencrypted_one_warned_about(lead: Host, tmp_path: Path) -> None:
    before = (lead.folder / "cert" / "authority" / "ca.key").read_bytes()
    assert lead.refused("authority", "-f", "heart").message.startswith("there is an authority already")
    assert (lead.folder / "cert" / "authority" / "ca.key").read_bytes() == before
    lead.run("authority", "-f", "lungs", "--cert-folder", str(tmp_path / "lungs"))
    output = RUNNER.invoke(app, ["authority", "-f", "heart", "--cert-folder", str(tmp_path / "second")]).output
    assert "warning: the authority's key is not encrypted" in output
    assert stat.S_IMODE((lead.folder / "cert" / "authority" / "ca.key").stat().st_mode) == 0o600


def test_an_encrypted_authority_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clinic: Host) -> None:
    lead = Host(tmp_path / "careful", monkeypatch)
    assert "warning" not in lead.run(
        "authority", "-f", "heart", "--passphrase", typed="correct horse\ncorrect horse\n"
    )
    clinic.run("request", "-n", "clinic-a", "-f", "heart")
    lead.receive(clinic, "clinic-a.request.json")
    lead.run("sign", "clinic-a.request.json", typed="y\ncorrect horse\n")
    assert "does not open" in lead.refused("sign", "clinic-a.request.json", "--yes", typed="battery\n").message
    (lead.folder / "secret.txt").write_text("correct horse\n")
    lead.run("sign", "clinic-a.request.json", "--yes", "--passphrase-file", "secret.txt")
    (lead.folder / "secret.txt").write_text("\n")
    error = lead.refused("sign", "clinic-a.request.json", "--yes", "--passphrase-file", "secret.txt")
    assert error.message == "the passphrase in secret.txt is empty"


def test_a_known_name_with_a_new_signing_key_is_signed_only_on_purpose(
    lead: Host, clinic: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    join(lead, clinic)
    stranger = Host(tmp_path / "stranger", monkeypatch)
    stranger.run("request", "-n", "clinic-a", "-f", "heart")
    lead.receive(stranger, "clinic-a.request.json")
    assert "clinic-a had the signing key" in lead.refused("sign", "clinic-a.request.json", "--yes").message
    lead.run("sign", "clinic-a.request.json", "--yes", "--replace-signing-key")


def test_the_inventory_shows_every_site_and_what_is_wrong(lead: Host, clinic: Host) -> None:
    join(lead, clinic)
    lead.run("request", "-n", "aggregator", "-f", "heart")
    table = lead.run("show")
    assert "waiting for its" in table
    assert "…" not in table, "a serial that is cut cannot be revoked"
    items = {item["name"]: item for item in json.loads(lead.run("show", "--json"))["items"]}
    assert list(items) == ["authority", "aggregator", "clinic-a"]
    assert items["authority"]["status"] == items["clinic-a"]["status"] == "good"
    assert items["clinic-a"]["where"] == "authority register"
    assert items["aggregator"]["not_after"] is None
    at_home = json.loads(clinic.run("show", "--json"))["items"]
    assert [item["name"] for item in at_home] == ["authority", "clinic-a"]
    assert at_home[1]["fingerprint"] == items["clinic-a"]["fingerprint"]


def test_the_inventory_goes_on_after_a_damaged_certificate(lead: Host) -> None:
    now = datetime.now(UTC)
    issue_all(lead.folder / "demo", "heart", ["clinic-a", "clinic-b"], ["localhost"], now - timedelta(days=350))
    (lead.folder / "demo" / "clinic-a" / "tls.crt").write_bytes(b"junk")
    (lead.folder / "demo" / "clinic-b" / "tls.key").chmod(0o640)
    items = {
        item["where"].split("/")[-2] if "/" in item["where"] else "elsewhere": item
        for item in json.loads(lead.run("show", "demo", "--json"))["items"]
    }
    assert "is malformed" in items["clinic-a"]["status"]
    assert items["clinic-b"]["status"] == "good"
    assert items["clinic-b"]["warnings"][0].endswith("in 14 days")
    assert "may be read by others on this machine (mode 0640)" in items["clinic-b"]["warnings"][1]


def test_empty_folders_missing_files_and_other_roles_are_told(clinic: Host, lead: Host) -> None:
    error = clinic.refused("request", "-n", "clinic-a", "-f", "heart", "--role", "aggregator")
    assert error.message == "'clinic-a' has the role collaborator"
    assert not (clinic.folder / "cert").exists()
    error = clinic.refused("show")
    assert error.message == "there are no certificates in cert"
    assert "fedfair certs request" in error.remedy
    asked = clinic.run("request", "-n", "clinic-a", "-f", "heart")
    assert fingerprint_in(clinic.run("show", "clinic-a.request.json")) == fingerprint_in(asked)
    assert "cannot read the request none.json" in lead.refused("sign", "none.json").message
    assert "the bundle is missing: none.pem" in lead.refused("install", "none.pem").message
    error = clinic.refused("sign", "clinic-a.request.json", "--yes")
    assert error.message.startswith("the authority's certificate is missing")
    assert "run this where it is kept" in error.remedy


def test_a_site_keeps_its_keys_encrypted_from_the_request_to_the_renewal(lead: Host, clinic: Host) -> None:
    clinic.run("request", "-n", "clinic-a", "-f", "heart", "--passphrase", typed="correct horse\ncorrect horse\n")
    lead.receive(clinic, "clinic-a.request.json")
    lead.run("sign", "clinic-a.request.json", "--yes")
    clinic.receive(lead, "clinic-a.certificate.pem")
    (clinic.folder / "secret.txt").write_text("correct horse\n")
    clinic.run("install", "clinic-a.certificate.pem", "--yes", "--passphrase-file", "secret.txt")
    clinic.run("renew", "-n", "clinic-a", "--passphrase-file", "secret.txt")
    keys = sorted((clinic.folder / "cert" / "clinic-a").glob("*.key"))
    assert [path.name for path in keys] == ["signing.key", "tls.key", "tls.next.key"]
    assert all(b"BEGIN ENCRYPTED PRIVATE KEY" in path.read_bytes() for path in keys)
    lead.receive(clinic, "clinic-a.request.json")
    lead.run("sign", "clinic-a.request.json", "--yes")
    clinic.receive(lead, "clinic-a.certificate.pem")
    clinic.run("install", "clinic-a.certificate.pem", "--passphrase-file", "secret.txt")
    now = datetime.now(UTC)
    site = load_site_identity(clinic.folder / "cert", "clinic-a", now, b"correct horse")
    assert site.participant.name == "clinic-a"
    assert not (clinic.folder / "cert" / "clinic-a" / "tls.next.key").exists()


def test_a_wrong_passphrase_is_one_clear_error(clinic: Host) -> None:
    (clinic.folder / "secret.txt").write_text("correct horse\n")
    clinic.run("request", "-n", "clinic-a", "-f", "heart", "--passphrase-file", "secret.txt")
    (clinic.folder / "secret.txt").write_text("wrong horse\n")
    error = clinic.refused("renew", "-n", "clinic-a", "--passphrase-file", "secret.txt")
    assert error.message == (
        "the signing key of clinic-a does not open with this passphrase: cert/clinic-a/signing.key"
    )
    assert "nobody can recover" in error.remedy


def test_keys_that_are_in_use_are_encrypted_and_get_another_passphrase(lead: Host, clinic: Host) -> None:
    join(lead, clinic)
    clinic.run("renew", "-n", "clinic-a")
    folder = clinic.folder / "cert"
    before = load_site_identity(folder, "clinic-a", datetime.now(UTC))
    said = clinic.run("encrypt", "-n", "clinic-a", typed="correct horse\ncorrect horse\n")
    keys = sorted((folder / "clinic-a").glob("*.key"))
    assert [path.name for path in keys] == ["signing.key", "tls.key", "tls.next.key"]
    assert all(f"{path.relative_to(clinic.folder)} is encrypted" in said for path in keys)
    assert all(b"BEGIN ENCRYPTED PRIVATE KEY" in path.read_bytes() for path in keys)
    assert {stat.S_IMODE(path.stat().st_mode) for path in keys} == {0o600}
    (clinic.folder / "old.txt").write_text("correct horse\n")
    (clinic.folder / "new.txt").write_text("battery staple\n")
    clinic.run("encrypt", "-n", "clinic-a", "--passphrase-file", "old.txt", "--new-passphrase-file", "new.txt")
    after = load_site_identity(folder, "clinic-a", datetime.now(UTC), b"battery staple")
    assert after.certificate == before.certificate
    assert after.signing_key.public_key() == before.signing_key.public_key()
    with pytest.raises(IdentityError, match="does not open with this passphrase"):
        load_site_identity(folder, "clinic-a", datetime.now(UTC), b"correct horse")


def test_an_interrupted_encryption_is_done_again_and_a_wrong_passphrase_is_none(lead: Host, clinic: Host) -> None:
    join(lead, clinic)
    folder = clinic.folder / "cert" / "clinic-a"
    plain = (folder / "tls.key").read_bytes()
    (clinic.folder / "new.txt").write_text("battery staple\n")
    clinic.run("encrypt", "-n", "clinic-a", "--new-passphrase-file", "new.txt")
    # As if the process had been killed after the first key.
    (folder / "tls.key").write_bytes(plain)
    files = "--passphrase-file", "new.txt", "--new-passphrase-file", "new.txt"
    clinic.run("encrypt", "-n", "clinic-a", *files)
    assert b"ENCRYPTED" in (folder / "tls.key").read_bytes()
    kept = {path: path.read_bytes() for path in folder.iterdir()}
    (clinic.folder / "wrong.txt").write_text("wrong horse\n")
    files = "--passphrase-file", "wrong.txt", "--new-passphrase-file", "wrong.txt"
    error = clinic.refused("encrypt", "-n", "clinic-a", *files)
    assert "does not open with this passphrase" in error.message
    assert kept == {path: path.read_bytes() for path in folder.iterdir()}
    assert "make one" in clinic.refused("encrypt", "-n", "clinic-b", "--new-passphrase-file", "new.txt").remedy


def test_without_a_terminal_a_key_names_its_passphrase(clinic: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    (clinic.folder / "secret.txt").write_text("correct horse\n")
    clinic.run("request", "-n", "clinic-a", "-f", "heart", "--passphrase-file", "secret.txt")
    error = clinic.refused("renew", "-n", "clinic-a")
    assert "are encrypted, and no terminal can be asked" in error.message
    assert "--passphrase-file FILE, or as the systemd credential 'fedfair-passphrase'" in error.remedy
    credentials = clinic.folder / "credentials"
    credentials.mkdir()
    (credentials / "fedfair-passphrase").write_text("correct horse")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(credentials))
    error = clinic.refused("renew", "-n", "clinic-a")
    # The keys are open; what is missing is the first certificate.
    assert "the certificate of clinic-a is missing" in error.message


def test_the_authority_s_host_does_not_install_a_certificate_of_an_encrypted_key(lead: Host) -> None:
    (lead.folder / "own.txt").write_text("correct horse\n")
    lead.run("request", "-n", "aggregator", "-f", "heart", "--passphrase-file", "own.txt")
    said = lead.run("sign", "aggregator.request.json", "--host", "localhost", "--yes")
    assert "fedfair certs install aggregator.certificate.pem" in said
    lead.run("install", "aggregator.certificate.pem", "--passphrase-file", "own.txt")
    site = load_site_identity(lead.folder / "cert", "aggregator", datetime.now(UTC), b"correct horse")
    assert site.participant.name == "aggregator"
