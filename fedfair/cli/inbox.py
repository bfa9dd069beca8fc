"""`fedfair inbox`: what is proposed to this site, in words, and the decisions of its own people about it."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from fedfair.process.terminal import DEBUG_HELP, console, say, tell

if TYPE_CHECKING:
    from collaborator.study_review.blocks import Block
    from collaborator.study_review.listing import SiteInbox
    from collaborator.study_review.review import ShownPart, StudyReview
    from fedfair.consent.approvers import Person
    from fedfair.consent.decisions import Choice, Signer, StudySubject

app = typer.Typer(epilog=DEBUG_HELP)

Config = Annotated[Path, typer.Option("--config", "-c", help="This site's own configuration.")]
Study = Annotated[str, typer.Argument(metavar="STUDY", help="Name of the study.")]
Named = Annotated[str, typer.Option("--as", metavar="PERSON", help="Who decides: a name of approvers.yaml.")]
Key = Annotated[
    Path | None,
    typer.Option("--key", help="That person's key; by default people/PERSON.pem, or else a key of the ssh-agent."),
]
PassphraseFile = Annotated[
    Path | None, typer.Option("--passphrase-file", help="File that holds the passphrase of that key.")
]
Digest = Annotated[
    str | None, typer.Option("--digest", help="The plan's digest, in place of a question: for scripts.")
]
Words = Annotated[str, typer.Option("--words", help="Why, in one line.")]

DEFAULT_CONFIG = Path("collaborator.yaml")


@app.callback(invoke_without_command=True)
def listing(context: typer.Context, config: Config = DEFAULT_CONFIG) -> None:
    """List the studies proposed to this site: where each stands, who has decided, and what is awaited."""
    if context.invoked_subcommand is not None:
        return
    from collaborator.study_review.listing import listed, site_inbox

    site = site_inbox(config)
    found = [listed(site, folder) for folder in site.studies()]
    if not found:
        say("the inbox is empty: no study has been proposed to this site")
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("study", "phase", "proposed by", "decided"):
        table.add_column(heading, overflow="fold")
    for one in found:
        by = "" if one.proposal is None else one.proposal.by
        table.add_row(Text(one.name), Text(one.status.phase.value), Text(by), Text(one.words()))
    console.print(table)
    for one in found:
        for fault in one.faults:
            tell(f"{one.name}: the decision of {fault.name} counts nothing: {fault.words}", "yellow")


@app.command()
def show(study: Study, config: Config = DEFAULT_CONFIG) -> None:
    """Show a study in words: what it reveals, policy, records, ledger, code, and how it differs from the last."""
    from collaborator.study_review.listing import site_inbox

    _show(_review(site_inbox(config), study), every=True)


@app.command()
def approve(
    study: Study,
    person: Named,
    key: Key = None,
    passphrase_file: PassphraseFile = None,
    digest: Digest = None,
    words: Words = "",
    config: Config = DEFAULT_CONFIG,
) -> None:
    """Show what differs from the last approved study, and approve exactly this one with a person's key."""
    from fedfair.consent.decisions import Choice
    from fedfair.errors import ApprovalError

    site, member, _ = _about_to_decide(Choice.APPROVE, study, person, config)
    found = _review(site, study)
    _show(found, every=False)
    if found.obstacles:
        raise ApprovalError(
            f"{study} cannot be approved: {'; '.join(found.obstacles)}",
            "change collaborator.yaml if you agree, or refuse the study",
        )
    parts = tuple(part.value for part in found.to_open)
    subject = found.proposal.subject(site.site)
    _decide(site, member, Choice.APPROVE, subject, key, passphrase_file, words, parts, digest)


@app.command()
def refuse(
    study: Study,
    person: Named,
    words: Annotated[str, typer.Option("--words", help="Why, in one line; who proposed it will read it.")],
    key: Key = None,
    passphrase_file: PassphraseFile = None,
    digest: Digest = None,
    config: Config = DEFAULT_CONFIG,
) -> None:
    """Refuse a study: one person's refusal is this site's."""
    from fedfair.consent.decisions import Choice

    _end(Choice.REFUSE, study, person, words, key, passphrase_file, digest, config)


@app.command()
def withdraw(
    study: Study,
    person: Named,
    words: Annotated[str, typer.Option("--words", help="Why, in one line; who proposed it will read it.")],
    key: Key = None,
    passphrase_file: PassphraseFile = None,
    digest: Digest = None,
    config: Config = DEFAULT_CONFIG,
) -> None:
    """Withdraw what was approved, at once, even while it runs: one person is enough."""
    from fedfair.consent.decisions import Choice

    _end(Choice.WITHDRAW, study, person, words, key, passphrase_file, digest, config)


@app.command()
def person(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The person's name in approvers.yaml.")],
    key: Annotated[Path | None, typer.Option("--key", help="Where it goes; by default people/NAME.pem.")] = None,
    passphrase_file: PassphraseFile = None,
    agent: Annotated[
        bool, typer.Option("--agent", help="Make no key: print the lines of those that the ssh-agent holds.")
    ] = False,
    config: Config = DEFAULT_CONFIG,
) -> None:
    """Make the key of a person, which a passphrase opens, and print the line for approvers.yaml."""
    from fedfair.consent.approvers import parse_person
    from fedfair.consent.person_keys import key_file, make_person_key
    from fedfair.process.passphrase import new_passphrase

    parse_person(name)
    if agent:
        _show_agent(name)
        return
    place = key or key_file(config.parent, name)
    public = make_person_key(place, new_passphrase(passphrase_file, ask=True) or b"")
    say(f"{place} is {name}'s alone; the passphrase is kept nowhere")
    say("the line for people: in approvers.yaml:")
    say(_line(name, public))


@app.command()
def page(
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Where; other than this machine only under TLS.")
    ] = "localhost:8750",
    certificate: Annotated[
        Path | None, typer.Option("--certificate", help="PEM file; with it, other machines may reach the page.")
    ] = None,
    key: Annotated[Path | None, typer.Option("--key", help="PEM file of that certificate's key.")] = None,
    config: Config = DEFAULT_CONFIG,
) -> None:
    """Serve the inbox as a page on this machine; a link that is printed here logs somebody in, once."""
    from fedfair.errors import MissingExtraError
    from fedfair.extras import install_command, is_installed

    missing = [name for name in ("starlette", "uvicorn") if not is_installed(name)]
    if missing:
        raise MissingExtraError(f"the page needs {' and '.join(missing)}", install_command("page"))
    from collaborator.consent_page.place import page_place
    from collaborator.consent_page.serving import serve_page

    serve_page(config, page_place(listen, certificate, key), say)


def _line(name: str, public: str) -> str:
    return f'  {name}: {{key: "{public}", words: ""}}'


def _show_agent(name: str) -> None:
    from fedfair.errors import IdentityError
    from fedfair.identity.ssh_agent import agent_keys, agent_socket
    from fedfair.plan.public_keys import format_public_key

    place = agent_socket(os.environ)
    found = () if place is None else agent_keys(place)
    if not found:
        raise IdentityError("no ssh-agent here holds an Ed25519 key", "`ssh-add` one, or leave --agent out")
    for one in found:
        if one.is_hardware:
            tell(
                f"{one.comment}: a hardware key signs another message than these, so it is not supported", "yellow"
            )
        else:
            say(f"{one.comment}, the line for people: in approvers.yaml:")
            say(_line(name, format_public_key(one.public)))


def _end(
    choice: Choice,
    study: str,
    person: str,
    words: str,
    key: Path | None,
    passphrase_file: Path | None,
    digest: str | None,
    config: Path,
) -> None:
    """Sign a refusal or a withdrawal, of which nothing has to be looked at before."""
    site, member, subject = _about_to_decide(choice, study, person, config)
    _decide(site, member, choice, subject, key, passphrase_file, words, (), digest)


def _about_to_decide(
    choice: Choice, study: str, person: str, config: Path
) -> tuple[SiteInbox, Person, StudySubject]:
    """Return the site, who decides and about what, once it is known that the study takes this choice."""
    from collaborator.study_review.listing import site_inbox
    from collaborator.study_review.proposal import read_proposal
    from fedfair.consent.inbox import check_open, study_folder

    site = site_inbox(config)
    member, folder = site.approvers.person(person), study_folder(site.home, study)
    subject = read_proposal(folder).subject(site.site)
    check_open(folder, choice, site.approvers, subject)
    return site, member, subject


def _decide(
    site: SiteInbox,
    person: Person,
    choice: Choice,
    subject: StudySubject,
    key: Path | None,
    passphrase_file: Path | None,
    words: str,
    parts: tuple[str, ...],
    digest: str | None,
) -> None:
    """Sign a decision, once it is agreed that it is about exactly this plan: by its digest, or by an answer."""
    from collaborator.joining import checked_digest
    from fedfair.cli.answers import confirmed
    from fedfair.consent.decisions import decide
    from fedfair.consent.inbox import study_folder, write_decision
    from fedfair.errors import ApprovalError

    if digest is not None:
        checked_digest(digest, subject.plan_digest)
    folder = study_folder(site.home, subject.study)
    say(f"digest {subject.plan_digest}")
    option = f"--digest {subject.plan_digest}"
    if digest is None and not confirmed(f"Does {person.name} {choice} exactly this?", yes=False, option=option):
        raise ApprovalError("nothing was decided")
    signer = _signer(site, person, key, passphrase_file)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    made = decide(subject, person.name, choice, signer, at=now, words=words, parts=parts)
    say(f"signed by {person.name}: {write_decision(folder, made, site.approvers)}")


def _signer(site: SiteInbox, person: Person, key: Path | None, passphrase_file: Path | None) -> Signer:
    """Return what signs for a person: the file that is named, the usual file, or the ssh-agent."""
    from fedfair.consent.person_keys import file_signer, key_file
    from fedfair.errors import IdentityError
    from fedfair.identity.ssh_agent import agent_keys, agent_signature, agent_socket
    from fedfair.process.passphrase import read_passphrase

    place, usual = agent_socket(os.environ), key_file(site.home, person.name)
    public = person.key.public_bytes_raw()
    if key is None and not usual.exists():
        held = () if place is None else agent_keys(place)
        if place is not None and any(one.public == public and not one.is_hardware for one in held):
            return lambda message: agent_signature(place, public, message)
        raise IdentityError(
            f"there is neither {usual} nor a key of {person.name} in an ssh-agent",
            "give the key's file with --key, or `ssh-add` the key; a hardware key (ed25519-sk) is not supported",
        )
    if passphrase_file is not None:
        secret = read_passphrase(passphrase_file)
    else:
        secret = str(typer.prompt(f"Passphrase of {person.name}", hide_input=True)).encode()
    return file_signer(person, key or usual, secret)


def _review(site: SiteInbox, study: str) -> StudyReview:
    from collaborator.study_review.examination import examined
    from collaborator.study_review.review import review_of
    from fedfair.consent.inbox import study_folder

    folder = study_folder(site.home, study)
    return review_of(site.config_file, folder, examined(site.config_file, folder.plan))


def _show(found: StudyReview, *, every: bool) -> None:
    """Print the parts of a study: all of them, or those that differ from the study before it."""
    say(
        f"beside {found.before}, the study that this site approved last"
        if found.before
        else "the first study here"
    )
    for number, shown in enumerate(found.parts.values(), start=1):
        if every or shown.differs:
            say(f"{number}. {shown.title}", "bold")
            _show_part(shown)
        else:
            say(f"{number}. {shown.title}: as in {found.before}", "bold")
    for obstacle in found.obstacles:
        tell(f"error: {obstacle}", "bold red")


def _show_part(shown: ShownPart) -> None:
    for block in (*shown.changes, *shown.blocks):
        _show_block(block)


_STYLES = {"good": "green", "warning": "yellow", "fault": "bold red"}
_CHANGED = {"+": "green", "-": "red", "@": "cyan"}


def _show_block(block: Block) -> None:
    from collaborator.study_review.blocks import Lines, TableBlock

    if block.heading:
        say(f"{block.heading}:", "underline")
    if isinstance(block, Lines):
        for line in block.lines:
            say(line, _STYLES.get(block.tone, ""))
        return
    if isinstance(block, TableBlock):
        table = Table(*block.columns, show_header=bool(block.columns), box=None, pad_edge=False)
        for _ in range(0 if block.columns else 2):
            table.add_column(overflow="fold")
        for number, row in enumerate(block.rows):
            style = "red" if number in block.marked else ""
            table.add_row(*(Text(text, style) for text in row))
        console.print(table)
        return
    for line in block.text.split("\n"):
        say(line, _CHANGED.get(line[:1], "") if block.is_difference else "")
