"""`fedfair invite` and `fedfair admit`: the lead's two steps around `fedfair join`.

Each is made of steps that have commands of their own: `certs authority`, `request` and `sign`, `plan enroll` and
`check`, `workspace export`. What is there already is kept, so both can be run again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import typer

from fedfair.cli.answers import confirmed
from fedfair.cli.certs import BARE_KEY, say_fingerprint, show_request
from fedfair.cli.initial_model import put_initial_model
from fedfair.errors import ApprovalError, IdentityError, PlanError
from fedfair.identity import authority_store, bundle, register, store
from fedfair.identity.authority import CERTIFICATE_DAYS, Authority
from fedfair.identity.certificate import fingerprint
from fedfair.identity.files import certificate_pem, read_bytes, write_public
from fedfair.identity.request import SiteRequest, read_request
from fedfair.ids import AGGREGATOR, ParticipantId, parse_federation_name
from fedfair.plan.enrolment import enroll
from fedfair.plan.loading import load_plan
from fedfair.plan.public_keys import format_public_key
from fedfair.plan.schema import Plan
from fedfair.process.passphrase import authority_passphrase, new_passphrase
from fedfair.process.terminal import say, warn
from fedfair.store.atomic_file import replace_file
from fedfair.workspace import archive

PLAN_FILE = Path("plan", "plan.yaml")
CERT_FOLDER = Path("cert")
DEFAULT_ARCHIVE = "<federation>.zip"


def invite_command(
    target: Path | None = typer.Argument(
        None, metavar="ARCHIVE", help=f"The archive to write; by default {DEFAULT_ARCHIVE}.", show_default=False
    ),
    host: list[str] = typer.Option(
        [], "--host", help="One more name or address of the aggregator, beside the plan's. Repeatable."
    ),
    passphrase: bool = typer.Option(False, "--passphrase", help="Ask for a passphrase for a new authority's key."),
    passphrase_file: Path | None = typer.Option(
        None, "--passphrase-file", help="File that holds the passphrase of the authority's key."
    ),
) -> None:
    """Create what a lead needs, where it is missing, and write the archive that sites join with.

    Run it in the workspace, when its plan names the host and the sites.
    """
    plan, now = load_plan(PLAN_FILE), datetime.now(UTC)
    federation = parse_federation_name(plan.federation.name)
    path = Path(f"{federation}.zip") if target is None else target
    if path.exists():
        raise PlanError(f"{path} exists; it was left alone", "name another file, or move it away")
    if (CERT_FOLDER / store.AUTHORITY_FOLDER / authority_store.CA_KEY).exists():
        signer = authority_store.load_authority(
            CERT_FOLDER, now, authority_passphrase(CERT_FOLDER, passphrase_file)
        )
    else:
        secret = new_passphrase(passphrase_file, ask=passphrase)
        signer = authority_store.found_authority(CERT_FOLDER, federation, now, secret)
        say(f"authority of '{federation}' created in {CERT_FOLDER / store.AUTHORITY_FOLDER}")
        if secret is None:
            warn(BARE_KEY)
    _identify_aggregator(plan, signer, host, now)
    put_initial_model(PLAN_FILE)
    write_public(path, archive.pack(Path(), {"authority.pem": certificate_pem(signer.certificate)}))
    say(
        f"wrote {path}: send it to {', '.join(plan.federation.collaborators)}; each runs: fedfair join {path.name}"
    )
    _say_authority(signer)
    say("next, with the requests that they send: fedfair admit *.request.json")


def _identify_aggregator(plan: Plan, signer: Authority, more: Sequence[str], now: datetime) -> None:
    """Make the aggregator's keys and certificate, unless it has them for the plan's host."""
    hosts = tuple(dict.fromkeys((plan.federation.aggregator.host, *more)))
    previous = register.latest_of(authority_store.load_register(CERT_FOLDER), AGGREGATOR)
    if previous is not None:
        missing = [host for host in hosts if host not in previous.hosts]
        if missing:
            raise IdentityError(
                f"the aggregator's certificate is for {', '.join(previous.hosts)}, not for {', '.join(missing)}",
                f"`fedfair certs renew --name aggregator`, then `fedfair certs sign aggregator.request.json "
                f"{' '.join(f'--host {host}' for host in hosts)}`",
            )
        return
    authority_store.make_identity(CERT_FOLDER, signer, AGGREGATOR, hosts=hosts, now=now)
    say(f"aggregator: keys and certificate for {', '.join(hosts)} in {CERT_FOLDER / AGGREGATOR}")


def admit_command(
    requests: list[Path] = typer.Argument(..., metavar="REQUEST...", help="Requests, <name>.request.json."),
    target: Path | None = typer.Option(
        None, "--archive", help=f"The archive to write; by default {DEFAULT_ARCHIVE}.", show_default=False
    ),
    replace: bool = typer.Option(
        False, "--replace", help="Admit a site that has made a new signing key. All sites approve again."
    ),
    yes: bool = typer.Option(False, "--yes", "-y", help="Do not ask for confirmation."),
    passphrase_file: Path | None = typer.Option(
        None, "--passphrase-file", help="File that holds the passphrase of the authority's key."
    ),
) -> None:
    """Sign the sites' requests, pin their keys in the plan, and write the archive that answers them.

    Compare each request's fingerprint with its site first, by phone.
    """
    plan, now = load_plan(PLAN_FILE), datetime.now(UTC)
    federation = parse_federation_name(plan.federation.name)
    asked = {one.name: one for one in map(read_request, requests)}
    _check_requests(plan, asked, requests)
    known = authority_store.load_register(CERT_FOLDER)
    for one in asked.values():
        show_request(one)
        if not replace:
            register.check_same_signing_key(known, one)
    if not confirmed("Does every site read out the same fingerprint to you?", yes=yes):
        raise ApprovalError("nobody was admitted")
    signer = authority_store.load_authority(CERT_FOLDER, now, authority_passphrase(CERT_FOLDER, passphrase_file))
    trust = store.load_trust(CERT_FOLDER, now)
    for one in asked.values():
        if not _is_signed(one):
            signed = authority_store.issue(CERT_FOLDER, signer, one, hosts=(), now=now, days=CERTIFICATE_DAYS)
            write_public(_bundle_of(one.name), bundle.make_bundle(signed, trust))
            say(f"{one.name}: signed until {signed.not_valid_after_utc:%Y-%m-%d}")
    keys = {str(name): format_public_key(one.signing_public_key.public_bytes_raw()) for name, one in asked.items()}
    enroll(PLAN_FILE, keys, replace=replace)
    _answer(Path(f"{federation}.zip") if target is None else target, signer)


def _check_requests(plan: Plan, asked: Mapping[ParticipantId, SiteRequest], requests: Sequence[Path]) -> None:
    if len(asked) != len(requests):
        raise ApprovalError("two requests are of one site", "give one request for each site")
    for name, one in asked.items():
        if one.federation != plan.federation.name:
            raise ApprovalError(
                f"the request of {name} is for '{one.federation}', the plan is of '{plan.federation.name}'"
            )
        if name not in plan.federation.collaborators:
            known = ", ".join(plan.federation.collaborators)
            raise ApprovalError(f"{name} is no collaborator of {PLAN_FILE}", f"the plan names {known}")


def _bundle_of(name: str) -> Path:
    return Path(f"{name}.certificate.pem")


def _is_signed(asked: SiteRequest) -> bool:
    """Return whether this very key has its certificate already, from an earlier run of the command."""
    path = _bundle_of(asked.name)
    if not path.exists():
        return False
    certificate = bundle.read_bundle(path).certificate
    return certificate is not None and certificate.public_key() == asked.csr.public_key()


def _answer(target: Path, signer: Authority) -> None:
    """Write the archive that answers all sites, or say who is still to be admitted."""
    from fedfair.plan.digest import format_digest
    from fedfair.report.plan_review import plan_review
    from fedfair.training.known_digest import digest_of

    plan = load_plan(PLAN_FILE)
    missing = list(_not_admitted(plan))
    if missing:
        say(f"still to be admitted: {', '.join(missing)}; no answer is written before, for all approve one plan")
        return
    put_initial_model(PLAN_FILE)
    files = {
        f"{name}.certificate.pem": read_bytes(_bundle_of(name), "a certificate")
        for name in plan.federation.collaborators
    }
    files["authority.pem"] = certificate_pem(signer.certificate)
    replace_file(target, [archive.pack(Path(), files)])
    for warning in plan_review(plan).warnings:
        warn(warning)
    say(f"wrote {target}: send it to every site; each runs: fedfair join {target.name}")
    if not plan.task.references:
        say(f"they will approve the plan with the digest {format_digest(digest_of(plan, PLAN_FILE))}")
    _say_authority(signer)
    say("next: fedfair aggregator start")


def _not_admitted(plan: Plan) -> Iterator[str]:
    for name in plan.federation.collaborators:
        if name not in plan.federation.roster or not _bundle_of(name).exists():
            yield name


def _say_authority(signer: Authority) -> None:
    say("read to every site by phone the authority's fingerprint:")
    say_fingerprint(fingerprint(signer.certificate))
