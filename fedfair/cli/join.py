"""`fedfair join`: a site's way into a federation, in one conversation that can be left and resumed.

Each run of the command does what can be done now, and ends with what comes next. The decisions are those of
`collaborator.joining`; the keys and everything about the data stay in this site's folder.
"""

from __future__ import annotations

import sys
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fedfair.cli.answers import Answers, at_the_terminal
from fedfair.errors import ApprovalError, IdentityError, PlanError
from fedfair.process.passphrase import FILE_HELP, new_passphrase, own_passphrase
from fedfair.process.terminal import console, say

if TYPE_CHECKING:
    from collaborator.joining import Invitation, JoiningSite
    from collaborator.preparation import PreparedSite
    from fedfair.plan.schema import Plan
    from fedfair.training.binding import PlanBinding

SITE_FILE = "collaborator.yaml"

SHOWN = "shown"
"""The value of an option that agrees to what the archive shows, without a comparison: for rehearsals."""


@dataclass(frozen=True, slots=True)
class JoinOptions:
    """The answers on the command line; None, or empty, where there is none.

    Attributes:
        name: the site's.
        authority: the fingerprint that the lead has read aloud; SHOWN for the archive's own.
        site_file: a prepared `collaborator.yaml`.
        data: the file or folder of the site's records.
        code: the digest of the code that may run; SHOWN for that of the plan, whatever it is.
        approve: the digest of the plan that is approved; SHOWN for that of the archive's, whatever it is.
        passphrase_file: holds the passphrase of the keys.
        encrypt: whether to ask for a passphrase for new keys.
    """

    name: str | None
    authority: str | None
    site_file: Path | None
    data: Path | None
    code: str | None
    approve: str | None
    passphrase_file: Path | None
    encrypt: bool


def join_command(
    source: Path = typer.Argument(..., metavar="ARCHIVE", help="What the lead has sent."),
    name: str | None = typer.Option(None, "--name", "-n", help="This site's name in the plan."),
    folder: Path | None = typer.Option(
        None, "--workspace", "-w", help="This site's folder; by default one with the federation's name."
    ),
    authority: str | None = typer.Option(
        None,
        "--authority",
        help="The authority's fingerprint, as the lead has read it aloud; or shown, for the archive's: in a "
        "rehearsal only.",
    ),
    site_file: Path | None = typer.Option(
        None, "--site-file", help="A prepared collaborator.yaml to copy: data, policy and budget."
    ),
    data: Path | None = typer.Option(None, "--data", help="The file or folder of this site's training records."),
    code: str | None = typer.Option(
        None, "--code", help="Digest of the plan's own code that may run here; or shown, for whatever it is."
    ),
    approve: str | None = typer.Option(
        None, "--approve", help="Digest of the plan that this site approves; or shown, for whatever it is."
    ),
    yes: bool = typer.Option(
        False, "--yes", "-y", help="Replace an older plan without a question. Answers nothing that has an option."
    ),
    passphrase: bool = typer.Option(False, "--passphrase", help="Ask for a passphrase to encrypt both keys with."),
    passphrase_file: Path | None = typer.Option(None, "--passphrase-file", help=FILE_HELP),
) -> None:
    """Join a federation: keys and request; after the lead's answer review, policy, data and approval.

    The same command resumes where it was left. The private keys stay here.
    """
    options = JoinOptions(name, authority, site_file, data, code, approve, passphrase_file, passphrase)
    answers = Answers(at_the_terminal if sys.stdin.isatty() else None, yes)
    join(source, folder, options, answers)


def join(source: Path, folder: Path | None, options: JoinOptions, answers: Answers) -> None:
    """Take every step that can be taken now.

    Args:
        source: the lead's archive.
        folder: this site's folder; None for the usual one.
        options: what was answered beforehand.
        answers: how questions are answered.

    Raises:
        FedfairError: a step is refused, or waits for an answer; the steps before it stay done.
    """
    from collaborator.joining import (
        check_same_federation,
        joining_folder,
        joining_site,
        known_name,
        read_invitation,
    )
    from fedfair.workspace.archive import read_archive

    now = datetime.now(UTC)
    # Read once: what is shown, compared and installed are these bytes, whatever the file becomes meanwhile.
    invitation = read_invitation(read_archive(source), str(source), now)
    place = joining_folder(folder, Path(), invitation.federation)
    known = ", ".join(invitation.plan.federation.collaborators)
    name = options.name or known_name(place) or answers.text(f"Which site is this: {known}?", "--name NAME")
    site = joining_site(place, name, invitation)
    check_same_federation(site, invitation)
    if not site.has_keys or not (site.request_file.exists() or site.has_certificate):
        _request(site, invitation, options)
    if not site.has_certificate and site.participant.name not in invitation.bundles:
        _say_waiting(site, invitation)
        return
    secret = own_passphrase(site.cert_folder, site.participant.name, options.passphrase_file)
    if not site.has_certificate:
        _install(site, invitation, options, answers, secret, now)
    _take_plan(site, invitation, answers)
    _write_site_file(site, invitation.plan, options, answers)
    _approve(site, options, answers, secret)


def _request(site: JoiningSite, invitation: Invitation, options: JoinOptions) -> None:
    from collaborator.joining import begin
    from fedfair.cli.certs import show_request
    from fedfair.identity.request import parse_request

    _heading(1, "keys and request")
    if site.has_keys:
        secret = own_passphrase(site.cert_folder, site.participant.name, options.passphrase_file)
    else:
        secret = new_passphrase(options.passphrase_file, ask=options.encrypt)
    request = begin(site, invitation, secret)
    say(f"both keys are in {site.keys}; they stay there")
    show_request(parse_request(request))


def _say_waiting(site: JoiningSite, invitation: Invitation) -> None:
    from fedfair.identity.certificate import fingerprint, grouped

    say(f"next: send {site.request_file} to the lead, and read them its fingerprint by phone")
    if invitation.authority is not None:
        say("      they read you the authority's; this archive shows:")
        say(f"  {grouped(fingerprint(invitation.authority))}")
    say(f"then, when the lead has sent {Path(invitation.source).name} again: the same command continues")


def _install(
    site: JoiningSite,
    invitation: Invitation,
    options: JoinOptions,
    answers: Answers,
    secret: bytes | None,
    now: datetime,
) -> None:
    from collaborator.joining import arrived_bundle, check_read_aloud
    from fedfair.identity.bundle import check_bundle, install_bundle, installed_authority
    from fedfair.identity.certificate import fingerprint, grouped
    from fedfair.identity.store import find_key

    _heading(2, "the lead's answer")
    bundle = arrived_bundle(site, invitation)
    if bundle is None or bundle.certificate is None:
        raise PlanError(f"{invitation.source} holds no certificate for {site.participant.name}")
    if find_key(site.cert_folder, bundle.certificate, secret) is None:
        raise IdentityError(
            f"{invitation.source} answers another request of {site.participant.name}: "
            "its certificate is not for the keys that are here",
            f"send {site.request_file} to the lead, who runs `fedfair admit` with it",
        )
    trust = check_bundle(site.cert_folder, bundle, now, secret)
    if options.authority is not None and options.authority != SHOWN:
        check_read_aloud(trust.ca, options.authority)
    elif installed_authority(site.cert_folder) is None:
        say("it comes from the authority")
        say(f"  {grouped(fingerprint(trust.ca))}")
        if options.authority is None:
            answers.certain(
                "Does the lead read out the same to you?", "--authority FINGERPRINT", "nothing was installed"
            )
    install_bundle(site.cert_folder, bundle, now, secret)
    say(f"{site.participant.name} has a certificate until {bundle.certificate.not_valid_after_utc:%Y-%m-%d}")


def _take_plan(site: JoiningSite, invitation: Invitation, answers: Answers) -> None:
    """Put the archive's plan in place; one that differs from the plan here is shown and asked about first."""
    from fedfair.cli.workspace_update import take_update
    from fedfair.workspace.archive import unpack
    from fedfair.workspace.create import PLAN_FILE
    from fedfair.workspace.update import finish_update

    finish_update(site.folder)
    if (site.folder / PLAN_FILE).exists():
        take_update(invitation.raw, invitation.source, site.folder, answers)
    else:
        unpack(invitation.raw, site.folder)
        say(f"the plan is in {site.folder / PLAN_FILE}")


def _write_site_file(site: JoiningSite, plan: Plan, options: JoinOptions, answers: Answers) -> None:
    from fedfair.plan.sources import CsvSource
    from fedfair.policy.site_config import load_site_config
    from fedfair.store.atomic_file import write_whole
    from fedfair.workspace.create import write_site_file

    path = site.folder / SITE_FILE
    if path.exists():
        if options.site_file is not None or options.data is not None:
            given = (("--site-file", options.site_file), ("--data", options.data))
            named = " and ".join(name for name, value in given if value is not None)
            raise PlanError(f"{path} exists; it was left alone", f"edit it, and omit {named}")
        return
    if options.site_file is not None:
        stated = load_site_config(options.site_file).collaborator
        if stated != site.participant.name:
            raise PlanError(f"{options.site_file} is for {stated}, this is {site.participant.name}")
        write_whole(path, options.site_file.read_text(encoding="utf-8"))
        load_site_config(path)
        return
    records = options.data
    if records is None and isinstance(plan.task.data, CsvSource):
        option = "--data FILE, or --site-file FILE"
        records = Path(answers.text("Which file holds this site's training records?", option)).expanduser()
    if records is not None and not records.exists():
        raise PlanError(f"{records} does not exist", "name the file or folder of this site's records")
    written = write_site_file(site.folder, site.participant.name, records)
    say(f"wrote {written}: this site's own terms, the most careful")


def _approve(site: JoiningSite, options: JoinOptions, answers: Answers, secret: bytes | None) -> None:
    from collaborator.preparation import find_site
    from fedfair.workspace.create import PLAN_FILE

    plan_file = site.folder / PLAN_FILE
    prepared = find_site(site.participant.name, site.folder / SITE_FILE, plan_file, None)
    if _is_approved(prepared, plan_file, secret):
        say(f"{site.participant.name} has approved this very plan")
    else:
        _review(prepared, site, options, answers, secret)
    folder = "" if site.folder.resolve() == Path.cwd() else f"-C {site.folder} "
    say(f"next: fedfair {folder}collaborator start")


def _is_approved(prepared: PreparedSite, plan_file: Path, secret: bytes | None) -> bool:
    """Return whether the approval here is of this very plan, without running any code that it has not approved."""
    from collaborator.preparation import read_approval

    if not prepared.approval_file.exists():
        return False
    if prepared.plan.task.references and not _names_code(prepared, plan_file):
        return False
    try:
        key = replace(prepared, passphrase=secret).identity().signing_key.public_key()
        read_approval(prepared, key, _binding_of(prepared).digest)
    except ApprovalError:
        return False
    return True


def _names_code(prepared: PreparedSite, plan_file: Path) -> bool:
    """Return whether the policy names this very code, and not any code that a plan may bring."""
    from fedfair.cli.site_terms import site_terms

    site_file = plan_file.parent.parent / SITE_FILE
    named = bool(prepared.config.policy.module_code)
    return named and all(term.kept for term in site_terms(prepared.plan, plan_file, site_file)[1])


def _binding_of(prepared: PreparedSite) -> PlanBinding:
    from collaborator.preparation import computation_of

    with closing(computation_of(prepared)) as computation:
        return computation.binding()


def _review(
    prepared: PreparedSite, site: JoiningSite, options: JoinOptions, answers: Answers, secret: bytes | None
) -> None:
    """Show everything, check policy and data, and sign what was shown."""
    from collaborator.continued_run import beginning_words, begins_with_own_run
    from collaborator.joining import check_roster
    from collaborator.preparation import computation_of, keep_history
    from fedfair.cli.approving import show_summary, write_approval
    from fedfair.cli.site_terms import terms_table
    from fedfair.identity.store import load_signing_key
    from fedfair.plan.digest import format_digest
    from fedfair.policy.plan_check import check_policy
    from fedfair.policy.terms import AskedTerms, terms

    plan, name = prepared.plan, prepared.participant
    key = load_signing_key(site.cert_folder, name, secret)
    check_roster(plan, name, key.public_key().public_bytes_raw())
    _heading(3, "review of the plan")
    show_summary(plan)
    _heading(4, f"policy in {site.folder / SITE_FILE}")
    own_run = begins_with_own_run(prepared.runs, prepared.state, name, plan)
    asked = AskedTerms(plan, prepared.code.digest, own_run=own_run)
    console.print(terms_table(name, tuple(terms(asked, prepared.config.policy))))
    check_policy(asked, prepared.config.policy, name)
    if prepared.code.digest is not None:
        _allow_code(prepared, options, answers)
    _heading(5, "this site's records, which stay here")
    with closing(computation_of(prepared)) as computation:
        records = computation.records()
    if records.training:
        say(f"{records.training} training records; {records.profile.label_words}")
    for words in records.withheld:
        say(words)
    _heading(6, "approval")
    binding = _binding_of(prepared)
    keep_history(prepared, binding)
    found = beginning_words(prepared.runs, prepared.state, name, plan, binding)
    if found:
        say(found)
    digest = binding.digest
    say(f"digest {format_digest(digest)}")
    if options.approve is not None:
        _check_stated(options.approve, format_digest(digest))
    else:
        answers.certain(
            f"Does {name} approve exactly this?", f"--approve {format_digest(digest)}", "nothing was approved"
        )
    write_approval(prepared.approval_file, plan, digest, name, key)
    say(f"approved: {prepared.approval_file}")


def _allow_code(prepared: PreparedSite, options: JoinOptions, answers: Answers) -> None:
    from fedfair.plan.digest import format_digest
    from fedfair.plan.module_code import code_digests

    for path, digest in code_digests(prepared.plan.task.references, prepared.code.folder).items():
        say(f"runs {path}, SHA-256 {digest.hex()}")
    found = format_digest(prepared.code.digest or b"")
    if options.code is not None:
        _check_stated(options.code, found)
    else:
        question = "Records and digest are made by this code. Run it here now?"
        answers.certain(question, f"--code {found}", "nothing was approved, and nothing was run")


def _check_stated(stated: str, found: str) -> None:
    from collaborator.joining import checked_digest

    if stated != SHOWN:
        checked_digest(stated, found)


def _heading(number: int, text: str) -> None:
    say(f"{number}. {text}", "bold")
