"""`fedfair plan`: check, show, digest and approve what a consortium agrees on, and enrol its members' keys.

What a group size is worth is in `advise.py`, and what a change of the plan means in `plan_diff.py`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import typer
import yaml

from fedfair.cli.advise import ADVICE, ADVICE_FOLDER, advise_command
from fedfair.cli.answers import confirmed
from fedfair.cli.approving import show_summary, write_approval
from fedfair.cli.extend import extend
from fedfair.cli.freezing import freeze
from fedfair.cli.plan_diff import diff_command
from fedfair.cli.rerun import rerun
from fedfair.cli.site_terms import broken_terms, plan_code_digest, site_terms, terms_json, terms_table
from fedfair.errors import ApprovalError, PlanError
from fedfair.ids import ParticipantId, parse_participant_id
from fedfair.plan.deployment import check_deployment
from fedfair.plan.derived import given_references
from fedfair.plan.description import TRAP_WEIGHTS, summary
from fedfair.plan.digest import beginning_digest, format_digest
from fedfair.plan.editor_schema import plan_schema
from fedfair.plan.enrolment import enroll
from fedfair.plan.loading import load_plan, workspace_of
from fedfair.plan.module_code import code_digests
from fedfair.plan.public_keys import format_public_key
from fedfair.plan.schema import Plan
from fedfair.policy.site_config import SiteConfig, load_site_config
from fedfair.process.exit_status import ExitStatus
from fedfair.process.terminal import console, say, tell

if TYPE_CHECKING:
    from fedfair.policy.terms import Term
    from fedfair.report.plan_review import PlanReview
    from fedfair.training.binding import PlanBinding

app = typer.Typer(no_args_is_help=True)

app.command(name="advise")(advise_command)
app.command(name="diff")(diff_command)

PLAN = typer.Option(Path("plan/plan.yaml"), "--plan", "-p", help="The plan.")
AS_JSON = typer.Option(False, "--json", help="Print JSON.")
SITE_FILE = "collaborator.yaml"
YES = typer.Option(False, "--yes", "-y", help="Do not ask for confirmation.")


@app.command()
def check(
    plan_file: Path = PLAN,
    config: Path | None = typer.Option(
        None, "--config", "-c", help="A site's own file: check the plan against its policy, term by term."
    ),
    as_json: bool = AS_JSON,
    quiet: bool = typer.Option(False, "--quiet", "-q", help="Print errors and warnings only."),
) -> None:
    """Describe the plan, with warnings of likely mistakes and notes. With -c, check it against a site's policy.

    An error is something that stops the plan, such as a term that the site refuses; the exit status tells.
    """
    plan = load_plan(plan_file)
    if plan.training.initial is not None:
        # Whoever checks a plan has what it begins with beside it, as every host must.
        from fedfair.run.initial_model import stated_weights

        stated_weights(plan, plan_file)
    taken = 0
    if given_references(plan) is not None:
        from fedfair.run.reference_file import references_beside, stated_references
        from fedfair.tables.source_modules import declared_schema

        taken = stated_references(plan, declared_schema(plan), references_beside(plan)).references.sums
    if config is not None:
        check_deployment(plan)
    held = None if config is None else site_terms(plan, plan_file, config)
    # Torch takes seconds to load; a plan with a mistake should not have to wait for it.
    from fedfair.aggregation.masking_terms import exposures, guarantee, masking_cost

    promised, review = guarantee(plan), _reviewed(plan, plan_file)
    if taken:
        saved = (
            f"the references come from an earlier run, which trained them in {taken} sums: none of these is made"
        )
        review = replace(review, notes=(*review.notes, saved))
    errors = () if held is None else tuple(broken_terms(held[1]))
    if as_json:
        words = {"summary": dict(summary(plan)), "guarantee": promised, "errors": errors, **asdict(review)}
        words |= {"masks": masking_cost(plan), "know_first": exposures(plan)}
        site = {} if held is None else terms_json(*held)
        console.print_json(json.dumps({"format": "fedfair/plan-check/1", **words, **site}))
    else:
        if not quiet:
            _show_check(plan, plan_file, held)
        _show_remarks(errors, review, quiet=quiet)
    if errors:
        raise typer.Exit(ExitStatus.REFUSED)


def _reviewed(plan: Plan, plan_file: Path) -> PlanReview:
    """Return the remarks about a plan, with what an advice in its workspace says against it."""
    from fedfair.report.plan_review import plan_review

    review, place = plan_review(plan, plan_file), workspace_of(plan_file) / ADVICE_FOLDER / ADVICE
    if not place.is_file():
        return review
    from fedfair.studies.advice.remark import advice_remarks

    return replace(review, notes=(*advice_remarks(plan, place), *review.notes))


def _show_check(plan: Plan, plan_file: Path, held: tuple[str, tuple[Term, ...]] | None) -> None:
    show_summary(plan)
    if plan.task.references:
        say(f"code, for policy.module_code: {_code_words(plan, plan_file)}")
    if held is not None:
        console.print(terms_table(*held))


def _show_remarks(errors: Sequence[str], review: PlanReview, *, quiet: bool) -> None:
    told = [("error", "bold red", errors), ("warning", "yellow", review.warnings)]
    for level, style, remarks in told if quiet else [*told, ("note", "", review.notes)]:
        for remark in remarks:
            tell(f"{level}: {remark}", style)


@app.command()
def show(plan_file: Path = PLAN, as_json: bool = AS_JSON) -> None:
    """Print the plan with every default filled in."""
    values = load_plan(plan_file).model_dump(mode="json")
    if as_json:
        console.print_json(json.dumps(values))
    else:
        say(yaml.safe_dump(values, sort_keys=False).rstrip())


@app.command()
def schema() -> None:
    """Print the JSON Schema of plan.yaml, for completion and checks in editors."""
    console.print_json(json.dumps(plan_schema()))


app.command()(freeze)
app.command()(extend)
app.command()(rerun)


@app.command()
def digest(plan_file: Path = PLAN, as_json: bool = AS_JSON) -> None:
    """Print the digest that sites approve: of plan, layout, initial weights and code."""
    plan = load_plan(plan_file)
    code = plan_code_digest(plan, plan_file)
    from fedfair.training.known_digest import digest_of

    text = format_digest(digest_of(plan, plan_file))
    if as_json:
        begun = plan.training.initial
        words = {"plan_digest": text, "code_digest": None if code is None else format_digest(code)}
        words["beginning_digest"] = None if begun is None else format_digest(beginning_digest(begun))
        console.print_json(json.dumps({"format": "fedfair/plan-digest/1", **words}))
    else:
        say(text)


@app.command(name="approve")
def approve_command(
    name: str = typer.Option(..., "--name", "-n", help="This collaborator's name in the plan."),
    plan_file: Path = PLAN,
    cert_folder: Path = typer.Option(Path("cert"), "--cert-folder", help="Folder of this site's signing key."),
    model: Path | None = typer.Option(
        None, "--model", help="Approve the evaluation of this saved model on demand, instead of the plan."
    ),
    yes: bool = YES,
    passphrase_file: Path | None = typer.Option(
        None, "--passphrase-file", help="File that holds the passphrase of this participant's keys."
    ),
) -> None:
    """Approve exactly this plan by a signature of this site's key; with --model, one of its saved models."""
    from collaborator.joining import check_roster
    from fedfair.identity.store import load_signing_key
    from fedfair.process.passphrase import own_passphrase
    from fedfair.run.initial_model import check_initial_model
    from fedfair.training.binding import plan_binding

    plan = load_plan(plan_file)
    check_deployment(plan)
    participant = parse_participant_id(name)
    if model is not None:
        _approve_model(plan, plan_file, participant, model, yes=yes)
        return
    key = load_signing_key(cert_folder, participant, own_passphrase(cert_folder, participant, passphrase_file))
    check_roster(plan, participant, key.public_key().public_bytes_raw())
    show_summary(plan)
    code = workspace_of(plan_file)
    if plan.task.references:
        code = _allow_code(plan, code, participant, yes=yes)
    binding = plan_binding(plan, code)
    check_initial_model(plan_file, binding.vector)
    _show_beginning(plan, plan_file, participant, binding)
    plan_digest = binding.digest
    say(f"digest {format_digest(plan_digest)}")
    if not confirmed(f"Does {participant} approve exactly this?", yes=yes):
        raise ApprovalError("nothing was approved")
    target = workspace_of(plan_file) / "approvals" / f"{participant}.json"
    write_approval(target, plan, plan_digest, participant, key)
    say(f"approved: {target}")


def _approve_model(plan: Plan, plan_file: Path, participant: ParticipantId, path: Path, *, yes: bool) -> None:
    """Write that this site answers evaluations of one saved model, and keep a copy of the model."""
    from collaborator.known_models import ModelPlaces, approve_model, is_own, read_model
    from fedfair.results.outcome import RunSubject
    from fedfair.training.binding import plan_binding

    _check_member(plan, participant)
    workspace = workspace_of(plan_file)
    code = _allow_code(plan, workspace, participant, yes=yes) if plan.task.references else workspace
    binding = plan_binding(plan, code)
    digest = format_digest(binding.digest)
    subject = RunSubject(plan, digest, binding.layout, binding.schema, binding.initial_weights)
    places = ModelPlaces(participant, workspace / "approvals", workspace / "runs" / participant, subject)
    saved = read_model(places, path)
    say(f"model of round {saved.round} of {plan.training.rounds}, threshold {saved.model.threshold:g}")
    say(f"model digest {format_digest(places.identity(saved))}")
    say(f"plan digest {subject.plan_digest}")
    if not is_own(places, places.identity(saved)):
        say(f"no run of which {participant} has a copy ended with this model; {TRAP_WEIGHTS}")
    if not confirmed(f"Does {participant} approve evaluations of exactly this model?", yes=yes):
        raise ApprovalError("nothing was approved")
    say(f"approved: {approve_model(places, saved, datetime.now(UTC))}")


@app.command(name="new-module")
def new_module_command(
    name: str = typer.Argument("own", help="Name of the module: src/NAME.py."),
    plan_file: Path = PLAN,
) -> None:
    """Write a commented module with an own loader and model, which runs unchanged."""
    from fedfair.workspace.create import task_text, write_module

    place = write_module(workspace_of(plan_file), name)
    say(f"written: {place}")
    say(f"State it in {plan_file}, then simulate the plan:")
    say(task_text(name))


@app.command(name="enroll")
def enroll_command(
    requests: list[Path] = typer.Argument(..., metavar="REQUEST...", help="Requests, <name>.request.json."),
    plan_file: Path = PLAN,
    replace: bool = typer.Option(False, "--replace", help="Pin a new key for a name that has one."),
    yes: bool = YES,
) -> None:
    """Pin the members' signing keys. Compare each request's fingerprint with its site first."""
    from fedfair.identity.certificate import grouped
    from fedfair.identity.request import read_request

    federation = load_plan(plan_file).federation.name
    members: dict[str, str] = {}
    for path in requests:
        asked = read_request(path)
        if asked.federation != federation:
            raise ApprovalError(f"{path} is for federation '{asked.federation}', the plan is of '{federation}'")
        if asked.name in members:
            raise ApprovalError(f"{path} is a second request of {asked.name}", "give one request for each site")
        members[asked.name] = format_public_key(asked.signing_public_key.public_bytes_raw())
        say(f"{asked.name}: {members[asked.name]}, request's fingerprint:")
        say(f"  {grouped(asked.fingerprint)}")
    if not confirmed("Does every site read out the same fingerprint to you?", yes=yes):
        raise ApprovalError("nobody was enrolled")
    say(f"pinned in {enroll(plan_file, members, replace=replace)}; the plan's digest has changed")


def _code_words(plan: Plan, plan_file: Path) -> str:
    try:
        code = plan_code_digest(plan, plan_file)
    except PlanError as fault:
        return fault.message
    return "none" if code is None else format_digest(code)


def _show_beginning(plan: Plan, plan_file: Path, participant: ParticipantId, binding: PlanBinding) -> None:
    """Say what this site knows of what a plan begins with, or refuse what its policy does not allow."""
    from collaborator.continued_run import beginning_words, begins_with_own_run
    from collaborator.site_history import SiteHistory, history_file
    from fedfair.policy.terms import AskedTerms, weights_fault

    home = workspace_of(plan_file)
    runs, state = home / "runs" / participant, home / "state"
    found = beginning_words(runs, state, participant, plan, binding)
    if found:
        say(found)
    config = _config_of(participant, home / SITE_FILE)
    if config is None:
        return
    policy = config.policy
    asked = AskedTerms(plan, own_run=begins_with_own_run(runs, state, participant, plan))
    place = history_file(home, config, participant)
    history = SiteHistory(place, plan, binding.digest, binding.schema, policy, participant)
    broken = weights_fault(asked, policy) or history.term()
    if broken is not None:
        raise ApprovalError(
            f"the policy in {SITE_FILE} refuses it: {broken.fault}; nothing was approved",
            f"{broken.change} if you agree",
        )


def _allow_code(plan: Plan, workspace: Path, participant: ParticipantId, *, yes: bool) -> Path:
    """Let the plan's own code run, as the digest of its model takes, or refuse before any of it has run.

    Returns:
        the folder of the code that was shown and is to be run.
    """
    from collaborator.plan_code import plan_code
    from fedfair.policy.terms import AskedTerms, code_fault

    config = _config_of(participant, workspace / SITE_FILE)
    policy = None if config is None else config.policy
    frozen = policy is not None and bool(policy.module_code)
    code = plan_code(plan.task.references, workspace, frozen=frozen)
    for path, file_digest in code_digests(plan.task.references, code.folder).items():
        say(f"runs {path}, SHA-256 {file_digest.hex()}")
    broken = None if policy is None else code_fault(AskedTerms(plan, code.digest), policy)
    if broken is not None:
        raise ApprovalError(
            f"the policy in {SITE_FILE} refuses module code: {broken.fault}; nothing was run",
            f"{broken.change} if you agree",
        )
    if not confirmed("The digest covers the model that this code makes. Run it here now?", yes=yes):
        raise ApprovalError("nothing was approved, and nothing was run")
    return code.folder


def _config_of(participant: ParticipantId, config: Path) -> SiteConfig | None:
    site = load_site_config(config) if config.exists() else None
    return site if site is not None and site.collaborator == participant else None


def _check_member(plan: Plan, name: str) -> None:
    if name not in plan.federation.collaborators:
        known = ", ".join(plan.federation.collaborators)
        raise ApprovalError(f"{name} is no collaborator of this plan", f"the plan names {known}")
