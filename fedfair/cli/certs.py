"""`fedfair certs`: the authority, requests, certificates, renewals and revocations of one federation."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import typer
from rich.table import Table
from rich.text import Text

from fedfair.cli.answers import confirmed
from fedfair.errors import IdentityError
from fedfair.identity import authority_store, bundle, register, store
from fedfair.identity.authority import CERTIFICATE_DAYS
from fedfair.identity.certificate import Role, fingerprint, grouped, parse_participant, participant_of
from fedfair.identity.files import write_public
from fedfair.identity.inventory import GOOD, InventoryItem, take_inventory
from fedfair.identity.request import SiteRequest, parse_request, read_request
from fedfair.identity.signing import format_signing_key
from fedfair.ids import parse_federation_name
from fedfair.process.passphrase import FILE_HELP, authority_passphrase, new_passphrase, own_passphrase
from fedfair.process.terminal import console, say, warn

app = typer.Typer(no_args_is_help=True)

CERT_FOLDER = typer.Option(Path("cert"), "--cert-folder", help="Folder of keys and certificates.")
PASSPHRASE_FILE = typer.Option(None, "--passphrase-file", help="File that holds the authority key's passphrase.")
NEW_PASSPHRASE_FILE = typer.Option(
    None, "--passphrase-file", help="File that holds a passphrase to encrypt both keys with."
)
OWN_PASSPHRASE_FILE = typer.Option(None, "--passphrase-file", help=FILE_HELP)
BARE_KEY = (
    "the authority's key is not encrypted: anyone who reads ca.key can pose as the aggregator. Keep this host "
    "safe, or begin again with --passphrase"
)
YES = typer.Option(False, "--yes", "-y", help="Do not ask for confirmation.")


@app.command()
def authority(
    federation: str = typer.Option(..., "--federation", "-f", help="Name of the federation."),
    passphrase: bool = typer.Option(False, "--passphrase", help="Ask for a passphrase to encrypt the key with."),
    passphrase_file: Path | None = PASSPHRASE_FILE,
    cert_folder: Path = CERT_FOLDER,
) -> None:
    """Create the federation's certificate authority, once, on its operator's host."""
    secret = new_passphrase(passphrase_file, ask=passphrase)
    made = authority_store.found_authority(
        cert_folder, parse_federation_name(federation), datetime.now(UTC), secret
    )
    say(f"authority of '{federation}' created in {cert_folder / store.AUTHORITY_FOLDER}; every site will compare:")
    say_fingerprint(fingerprint(made.certificate))
    if secret is None:
        warn(BARE_KEY)


@app.command()
def request(
    name: str = typer.Option(
        ..., "--name", "-n", help="This participant: a collaborator's name, or 'aggregator'."
    ),
    federation: str = typer.Option(..., "--federation", "-f", help="Name of the federation."),
    role: Role | None = typer.Option(
        None, "--role", help="This participant's role; must fit the name.", show_default=False
    ),
    passphrase: bool = typer.Option(False, "--passphrase", help="Ask for a passphrase to encrypt both keys with."),
    passphrase_file: Path | None = NEW_PASSPHRASE_FILE,
    cert_folder: Path = CERT_FOLDER,
) -> None:
    """Create this participant's two keys and its request to the authority."""
    participant = parse_participant(federation, name)
    if role not in {None, participant.role}:
        raise IdentityError(
            f"'{name}' has the role {participant.role.value}",
            "the aggregator, and nobody else, is called 'aggregator'",
        )
    secret = new_passphrase(passphrase_file, ask=passphrase)
    _write_request(name, store.create_site(cert_folder, participant, secret))


@app.command()
def renew(
    name: str = typer.Option(..., "--name", "-n", help="This participant."),
    passphrase_file: Path | None = OWN_PASSPHRASE_FILE,
    cert_folder: Path = CERT_FOLDER,
) -> None:
    """Create a new TLS key and its request. The signing key stays, so approvals stay valid.

    Where the signing key is encrypted, the new key is encrypted with the same passphrase.
    """
    secret = own_passphrase(cert_folder, name, passphrase_file)
    _write_request(name, store.renew_site(cert_folder, name, secret))


@app.command()
def encrypt(
    name: str = typer.Option(..., "--name", "-n", help="This participant."),
    new_passphrase_file: Path | None = typer.Option(
        None, "--new-passphrase-file", help="File that holds the new passphrase. Without it, you are asked."
    ),
    passphrase_file: Path | None = OWN_PASSPHRASE_FILE,
    cert_folder: Path = CERT_FOLDER,
) -> None:
    """Encrypt this participant's keys with a passphrase, or with another one than before.

    The keys stay the same, so certificates and approvals stay valid. A running process keeps what it has read.
    """
    old = own_passphrase(cert_folder, name, passphrase_file)
    new = new_passphrase(new_passphrase_file, ask=True)
    if not new:
        raise IdentityError("the new passphrase is empty", "choose a long, random one")
    for path in store.encrypt_keys(cert_folder, name, new, old):
        say(f"{path} is encrypted")
    say("next: give the passphrase at every start: --passphrase-file FILE, or a systemd credential")


@app.command()
def sign(
    request_file: Path = typer.Argument(..., metavar="REQUEST", help="The site's request, <name>.request.json."),
    host: list[str] = typer.Option(
        [], "--host", help="Aggregator only: a host name or address of it. Repeatable."
    ),
    days: int = typer.Option(CERTIFICATE_DAYS, "--days", help="Days that the certificate is valid.", min=1),
    replace_signing_key: bool = typer.Option(
        False, "--replace-signing-key", help="Sign even if this name had another signing key before."
    ),
    yes: bool = YES,
    passphrase_file: Path | None = PASSPHRASE_FILE,
    cert_folder: Path = CERT_FOLDER,
) -> None:
    """Sign a site's request. Compare its fingerprint with the site first."""
    now = datetime.now(UTC)
    asked = read_request(request_file)
    show_request(asked)
    if not replace_signing_key:
        register.check_same_signing_key(authority_store.load_register(cert_folder), asked)
    _confirm(f"Does {asked.name} read out the same fingerprint to you?", yes, "nothing was signed")
    signer = authority_store.load_authority(cert_folder, now, authority_passphrase(cert_folder, passphrase_file))
    trust = store.load_trust(cert_folder, now)
    certificate = authority_store.issue(cert_folder, signer, asked, hosts=host, now=now, days=days)
    target = Path(f"{asked.name}.certificate.pem")
    write_public(target, bundle.make_bundle(certificate, trust))
    say(f"signed until {certificate.not_valid_after_utc:%Y-%m-%d}")
    locked = store.has_encrypted_key(cert_folder, asked.name)
    if not locked and store.find_key(cert_folder, certificate) is not None:
        store.install_certificate(cert_folder, certificate)
        say(f"installed in {cert_folder / asked.name}, as its key is here")
    else:
        say(f"next: send {target} to {asked.name}, who runs: fedfair certs install {target}")
    if asked.role is Role.COLLABORATOR:
        say(f"for federation.roster in the plan:  {asked.name}: {format_signing_key(asked.signing_public_key)}")


@app.command()
def install(
    file: Path = typer.Argument(
        ..., metavar="BUNDLE", help="<name>.certificate.pem, or the authority's revoked.crl."
    ),
    yes: bool = YES,
    passphrase_file: Path | None = OWN_PASSPHRASE_FILE,
    cert_folder: Path = CERT_FOLDER,
) -> None:
    """Install what the authority sent: a certificate or a newer revocation list."""
    now = datetime.now(UTC)
    arrived = bundle.read_bundle(file)
    secret = None
    if arrived.certificate is not None:
        secret = own_passphrase(cert_folder, participant_of(arrived.certificate).name, passphrase_file)
    trust = bundle.check_bundle(cert_folder, arrived, now, secret)
    if bundle.installed_authority(cert_folder) is None:
        say("this is the first bundle here; it comes from the authority")
        say_fingerprint(fingerprint(trust.ca))
        _confirm("Does the authority's operator read out the same to you?", yes, "nothing was installed")
    bundle.install_bundle(cert_folder, arrived, now, secret)
    if arrived.certificate is not None:
        name = participant_of(arrived.certificate).name
        say(f"{name} has a certificate until {arrived.certificate.not_valid_after_utc:%Y-%m-%d}")
    say("the revocation list is up to date")


@app.command()
def revoke(
    name: str | None = typer.Option(None, "--name", "-n", help="Revoke every certificate of this participant."),
    serial: str | None = typer.Option(
        None, "--serial", help="Revoke one certificate, by the serial that `show` prints."
    ),
    refresh: bool = typer.Option(False, "--refresh", help="Revoke nothing; only extend the list's validity."),
    yes: bool = YES,
    passphrase_file: Path | None = PASSPHRASE_FILE,
    cert_folder: Path = CERT_FOLDER,
) -> None:
    """Revoke certificates permanently before they expire."""
    if (name is not None) + (serial is not None) + refresh != 1:
        raise typer.BadParameter("give one of --name, --serial and --refresh")
    now = datetime.now(UTC)
    chosen = register.choose(authority_store.load_register(cert_folder), name, serial)
    for issued in chosen:
        say(f"{issued.name}, good until {issued.not_after:%Y-%m-%d}, serial {issued.serial:x}")
    if chosen:
        _confirm("Revoke permanently?", yes, "nothing was revoked")
    signer = authority_store.load_authority(cert_folder, now, authority_passphrase(cert_folder, passphrase_file))
    authority_store.revoke(cert_folder, signer, frozenset(issued.serial for issued in chosen), now)
    path = cert_folder / store.AUTHORITY_FOLDER / store.REVOCATION_LIST
    say(f"next: send {path} to every other host, where it takes effect with: fedfair certs install {path.name}")


@app.command()
def show(
    path: Path = typer.Argument(Path("cert"), help="A folder of certificates, or a request."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Show each certificate, its expiry and its faults."""
    if path.is_file():
        show_request(read_request(path))
        return
    items = take_inventory(path, datetime.now(UTC))
    if as_json:
        listed = [{**asdict(item), "not_after": item.not_after and item.not_after.isoformat()} for item in items]
        console.print_json(json.dumps({"format": "fedfair/certs/1", "items": listed}))
        return
    console.print(_table(items))
    for item in items:
        for warning in item.warnings:
            warn(f"{item.name}: {warning}")


def _table(items: list[InventoryItem]) -> Table:
    table = Table("name", "good until", "status", box=None, pad_edge=False)
    # A serial is what `revoke --serial` asks for: it is broken over lines, never cut.
    for heading in ("serial", "where"):
        table.add_column(heading, overflow="fold")
    for item in items:
        until = "" if item.not_after is None else f"{item.not_after:%Y-%m-%d}"
        status = Text(item.status, style="green" if item.status == GOOD else "bold red")
        table.add_row(Text(item.name), until, status, item.serial, Text(item.where))
    return table


def _write_request(name: str, content: bytes) -> None:
    path = Path(f"{name}.request.json")
    write_public(path, content)
    show_request(parse_request(content))
    say(f"next: send {path} to the authority's operator, and read them the fingerprint by phone")


def show_request(asked: SiteRequest) -> None:
    """Print who asks, and the fingerprint that two people compare."""
    say(f"request of the {asked.role.value} '{asked.name}' of the federation '{asked.federation}', fingerprint:")
    say_fingerprint(asked.fingerprint)


def say_fingerprint(digest: bytes) -> None:
    """Print a fingerprint as people read it aloud."""
    say(f"  {grouped(digest)}")


def _confirm(question: str, yes: bool, otherwise: str) -> None:
    if not confirmed(question, yes=yes):
        raise IdentityError(otherwise)
