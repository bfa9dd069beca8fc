"""`fedfair plan`: check, show, digest and approve what a consortium agrees on, and enrol its members' keys."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import typer
import yaml
from rich.table import Table
from rich.text import Text

from fedfair.errors import ApprovalError
from fedfair.ids import FederationName, ParticipantId, parse_participant_id
from fedfair.learning.masked_sums import guarantee
from fedfair.plan.approval import approve
from fedfair.plan.code import code_digests
from fedfair.plan.deployment import check_deployment
from fedfair.plan.digest import format_digest
from fedfair.plan.enrolment import enroll
from fedfair.plan.keys import format_public_key
from fedfair.plan.schema import Plan
from fedfair.plan.site import load_site_config
from fedfair.plan.source import load_plan, workspace_of
from fedfair.plan.summary import summary
from fedfair.report.terminal import console, error_console

app = typer.Typer(
    help="Check, show and approve the plan, and pin its members' keys.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

PLAN = typer.Option(Path("plan/plan.yaml"), "--plan", "-p", help="The plan.")
AS_JSON = typer.Option(False, "--json", help="Print JSON.")
SITE_FILE = "collaborator.yaml"
YES = typer.Option(False, "--yes", "-y", help="Do not ask.")


@app.command()
def check(
    plan_file: Path = PLAN,
    as_json: bool = AS_JSON,
    quiet: bool = typer.Option(False, "--quiet", "-q", help="Print warnings only."),
) -> None:
    """Say in words what the plan does, and what in it may not be meant."""
    plan = load_plan(plan_file)
    check_deployment(plan)
    # Torch takes seconds to load; a plan with a mistake should not have to wait for it.
    from fedfair.learning.advice import advice

    promised, warnings = guarantee(plan), advice(plan)
    if as_json:
        words = {"summary": dict(summary(plan)), "guarantee": promised, "warnings": warnings}
        console.print_json(json.dumps({"format": "fedfair/plan-check/1", **words}))
        return
    if not quiet:
        _show_summary(plan)
    for warning in warnings:
        error_console.print(Text(f"warning: {warning}", style="yellow"), soft_wrap=True)


@app.command()
def show(plan_file: Path = PLAN, as_json: bool = AS_JSON) -> None:
    """Print the plan with every default filled in."""
    values = load_plan(plan_file).model_dump(mode="json")
    if as_json:
        console.print_json(json.dumps(values))
    else:
        _say(yaml.safe_dump(values, sort_keys=False).rstrip())


@app.command()
def digest(plan_file: Path = PLAN, as_json: bool = AS_JSON) -> None:
    """Print the digest of plan, layout, initial weights and code: what sites approve."""
    plan = load_plan(plan_file)
    text = format_digest(_digest(plan, plan_file))
    if as_json:
        console.print_json(json.dumps({"format": "fedfair/plan-digest/1", "plan_digest": text}))
    else:
        _say(text)


@app.command(name="approve")
def approve_command(
    name: str = typer.Option(..., "--name", "-n", help="This collaborator's name in the plan."),
    plan_file: Path = PLAN,
    cert_folder: Path = typer.Option(Path("cert"), "--cert-folder", help="Where this site's signing key is."),
    yes: bool = YES,
) -> None:
    """Approve exactly this plan, signed with this site's key."""
    from fedfair.identity.store import load_signing_key

    plan = load_plan(plan_file)
    check_deployment(plan)
    participant = parse_participant_id(name)
    key = load_signing_key(cert_folder, participant)
    _check_pinned(plan, participant, format_public_key(key.public_key().public_bytes_raw()))
    _show_summary(plan)
    if plan.task.references:
        _allow_code(plan, workspace_of(plan_file), participant, yes=yes)
    plan_digest = _digest(plan, plan_file)
    _say(f"digest {format_digest(plan_digest)}")
    if not yes and not typer.confirm(f"Does {participant} approve exactly this?"):
        raise ApprovalError("nothing was approved")
    target = workspace_of(plan_file) / "approvals" / f"{participant}.json"
    now = datetime.now(UTC).isoformat(timespec="seconds")
    approval = approve(plan_digest, FederationName(plan.federation.name), participant, key, approved_at=now)
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(approval)
    _say(f"approved: {target}")


@app.command(name="enroll")
def enroll_command(
    requests: list[Path] = typer.Argument(..., metavar="REQUEST...", help="Requests, <name>.request.json."),
    plan_file: Path = PLAN,
    replace: bool = typer.Option(False, "--replace", help="Pin a new key for a name that has one."),
    yes: bool = YES,
) -> None:
    """Pin the signing keys of members, after comparing each request's fingerprint with its site."""
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
        _say(f"{asked.name}: {members[asked.name]}, request's fingerprint:")
        _say(f"  {grouped(asked.fingerprint)}")
    if not yes and not typer.confirm("Does every site read out the same fingerprint to you?"):
        raise ApprovalError("nobody was enrolled")
    _say(f"pinned in {enroll(plan_file, members, replace=replace)}; the plan's digest has changed")


def _digest(plan: Plan, plan_file: Path) -> bytes:
    from fedfair.learning.binding import plan_binding

    return plan_binding(plan, workspace_of(plan_file)).digest


def _allow_code(plan: Plan, workspace: Path, participant: ParticipantId, *, yes: bool) -> None:
    """Let the plan's own code run, as the digest of its model takes, or refuse before any of it has run."""
    for path, file_digest in code_digests(plan.task.references, workspace).items():
        _say(f"runs {path}, SHA-256 {file_digest.hex()}")
    config = workspace / SITE_FILE
    if config.exists():
        site = load_site_config(config)
        if site.collaborator == participant and not site.policy.allow_module_code:
            raise ApprovalError(
                f"the policy in {config.name} refuses module code, and the plan runs its own; nothing was run",
                "read that code, then set policy.allow_module_code: true if you agree",
            )
    if not yes and not typer.confirm("The digest covers the model that this code makes. Run it here now?"):
        raise ApprovalError("nothing was approved, and nothing was run")


def _check_pinned(plan: Plan, name: str, key: str) -> None:
    if name not in plan.federation.collaborators:
        known = ", ".join(plan.federation.collaborators)
        raise ApprovalError(f"{name} is no collaborator of this plan", f"the plan names {known}")
    pinned = plan.federation.roster.get(name)
    if pinned is None:
        raise ApprovalError(
            f"the plan pins no signing key for {name}, so nobody could verify an approval",
            f"whoever keeps the plan runs `fedfair plan enroll {name}.request.json` and sends it again",
        )
    if pinned != key:
        raise ApprovalError(
            f"the plan pins another signing key for {name}: {pinned}, this host has {key}",
            "use the host or --cert-folder with the right key, or have the new key enrolled",
        )


def _show_summary(plan: Plan) -> None:
    table = Table(show_header=False, box=None, pad_edge=False)
    for heading, sentence in (*summary(plan), ("guarantee", guarantee(plan))):
        table.add_row(Text(heading, style="bold"), Text(sentence))
    console.print(table)


def _say(text: str) -> None:
    console.print(Text(text), soft_wrap=True)
