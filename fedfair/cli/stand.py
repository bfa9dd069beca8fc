"""`fedfair stand`: turn the folder of a federation of one plan into one of a federation that stands.

In the lead's folder it makes the lead's own identity, the signed list of members with every site of the plan, and
the record of the hub. In a site's folder it takes that list, once somebody has compared the lead's key. Keys,
ledger, history, egress records and runs stay where they are: what a site has released before counts on.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import typer
import yaml

from fedfair.cli.answers import confirmed
from fedfair.cli.certs import say_fingerprint
from fedfair.consent.approvers import APPROVERS_FILE
from fedfair.consortium.members import FILE, Consortium, MemberRole, read_consortium
from fedfair.errors import ApprovalError, IdentityError, PlanError
from fedfair.identity import authority_store, register, store
from fedfair.identity.authority import Authority
from fedfair.identity.signing import format_signing_key
from fedfair.ids import AGGREGATOR, parse_participant_id
from fedfair.plan.loading import load_plan
from fedfair.plan.public_keys import UNPINNED_REMEDY
from fedfair.plan.schema import Plan
from fedfair.policy.site_config import load_site_config
from fedfair.policy.site_settings import SETTINGS_FILE, SITE_FILE
from fedfair.process.passphrase import FILE_HELP, authority_passphrase, own_passphrase
from fedfair.process.terminal import say
from fedfair.store.atomic_file import replace_file, write_whole

PLAN_FILE = Path("plan") / "plan.yaml"
CERT_FOLDER = Path("cert")
DRAFT = Path("members.yaml")
SHOWN = "shown"
"""Agrees to the lead's key as the list has it, without a comparison: for rehearsals."""

SETTINGS_TEXT = """# When and with what this site runs the studies that its people approve. All may be left out.
at_once: 1               # studies that run at the same time
disk: {limit_gib: 50.0}  # for archives and runs
"""


def stand_command(
    consortium: Path | None = typer.Argument(
        None, metavar="[CONSORTIUM]", help="At a site: the consortium.yaml that the lead has sent."
    ),
    lead: str | None = typer.Option(None, "--lead", help="In the lead's folder: the lead's own name."),
    lead_key: str | None = typer.Option(
        None,
        "--lead-key",
        help="At a site: the lead's key, as read aloud by the lead; or shown, in a rehearsal.",
    ),
    passphrase_file: Path | None = typer.Option(None, "--passphrase-file", help=FILE_HELP),
) -> None:
    """Let this folder stand: the lead's becomes a hub, and a site's follows it.

    Run it in the folder of a federation whose sites have joined. Nothing that is there is changed.
    """
    if (consortium is None) == (lead is None):
        raise typer.BadParameter(
            "in the lead's folder give --lead NAME; at a site give the lead's consortium.yaml"
        )
    if lead is not None:
        _make_hub(lead, passphrase_file)
    elif consortium is not None:
        _follow(consortium, lead_key, passphrase_file)


def _make_hub(lead: str, passphrase_file: Path | None) -> None:
    """Make the lead's identity, the list of members and the record, each where it is missing."""
    from aggregator.hub.commands import create, members
    from aggregator.hub.folder import HubFolder

    name, plan = parse_participant_id(lead), load_plan(PLAN_FILE)
    missing = [site for site in plan.federation.collaborators if site not in plan.federation.roster]
    if missing:
        raise PlanError(f"no signing key is pinned for {', '.join(missing)}", UNPINNED_REMEDY)
    if HubFolder(Path()).record.exists():
        raise PlanError("this folder is a hub already: record/ exists", "`fedfair hub start`")
    if name in plan.federation.collaborators:
        raise IdentityError(f"{name} is a site of the plan", "give the lead a name of its own, such as anna")
    now = datetime.now(UTC)
    authority = authority_store.load_authority(
        CERT_FOLDER, now, authority_passphrase(CERT_FOLDER, passphrase_file)
    )
    _identify(name, authority, now)
    write_whole(DRAFT, _draft(plan, name))
    members(DRAFT, name, Path(), CERT_FOLDER, None)
    create(Path(), passphrase_file)
    say(f"send {FILE} to every site; each runs in its folder: fedfair stand {FILE}")
    say("read to every site by phone the lead's key:")
    _say_key(read_consortium(Path(FILE)))
    say(f"move {CERT_FOLDER / name}/ to a machine of the lead's own: it signs every later list of members")


def _identify(name: str, authority: Authority, now: datetime) -> None:
    if register.latest_of(authority_store.load_register(CERT_FOLDER), name) is not None:
        return
    authority_store.make_identity(CERT_FOLDER, authority, name, now=now)
    say(f"{name}: keys and certificate of the lead in {CERT_FOLDER / name}")


def _draft(plan: Plan, lead: str) -> str:
    keys = {name: _public_key(name) for name in (AGGREGATOR, lead)}
    sites = {name: {"role": MemberRole.SITE.value, "key": key} for name, key in plan.federation.roster.items()}
    place = plan.federation.aggregator
    values = {
        "format": "fedfair/consortium/1",
        "federation": str(plan.federation.name),
        "number": 1,
        "hub": {"host": place.host, "port": place.port, "key": keys[AGGREGATOR]},
        "members": {lead: {"role": MemberRole.LEAD.value, "key": keys[lead]}, **sites},
    }
    return yaml.safe_dump(values, sort_keys=False, width=200)


def _public_key(name: str) -> str:
    return (CERT_FOLDER / name / "signing.pub").read_text(encoding="utf-8").strip()


def _follow(source: Path, lead_key: str | None, passphrase_file: Path | None) -> None:
    """Take the list of members at a site, after the lead's key was compared, and say what is left to do."""
    found, config = read_consortium(source), load_site_config(Path(SITE_FILE))
    _check_own(found, config.collaborator, Path(config.cert_folder), passphrase_file)
    say(f"{found.federation}: {len(found.members)} members, lead {found.lead.name}, hub {found.host}:{found.port}")
    _say_key(found)
    _check_lead(found, lead_key)
    if Path(FILE).exists() and Path(FILE).read_bytes() != found.raw:
        found.check_follows(read_consortium(Path(FILE)))
    replace_file(Path(FILE), [found.raw])
    if not Path(SETTINGS_FILE).exists():
        write_whole(Path(SETTINGS_FILE), SETTINGS_TEXT)
    say(f"wrote {FILE}; {SETTINGS_FILE} says when and with what this site runs studies")
    if not Path(APPROVERS_FILE).exists():
        say(f"next: each person who decides runs `fedfair inbox person NAME`; the lines go into {APPROVERS_FILE}")
    say("then: fedfair collaborator serve")


def _check_own(found: Consortium, name: str, cert_folder: Path, passphrase_file: Path | None) -> None:
    """Refuse a list that does not name this site by its own key."""
    secret = own_passphrase(cert_folder, name, passphrase_file)
    own = store.load_signing_key(cert_folder, name, secret).public_key()
    listed = found.members.get(parse_participant_id(name))
    if listed is None or listed.role is not MemberRole.SITE or listed.public_key != own:
        raise IdentityError(
            f"{FILE} does not name {name} as a site with the key {format_signing_key(own)}",
            f"send the lead {cert_folder / name / 'signing.pub'}, and ask for a new list",
        )


def _check_lead(found: Consortium, lead_key: str | None) -> None:
    shown = format_signing_key(found.lead.public_key)
    if lead_key is None:
        if not confirmed("Does the lead read out the same key to you?", yes=False, option="--lead-key KEY"):
            raise ApprovalError("nothing was written: the lead's key was not compared")
    elif lead_key not in (SHOWN, shown):
        raise IdentityError(f"the list is signed by {shown}, not by {lead_key}", "ask the lead, by phone")


def _say_key(found: Consortium) -> None:
    say_fingerprint(found.lead.public_key.public_bytes_raw())
    say(f"  {format_signing_key(found.lead.public_key)}")
