"""`fedfair certificate`: what evaluation proves about every sizeable group, signed, and checks of such a file."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.table import Table
from rich.text import Text

from fedfair.errors import CertificateError, IdentityError
from fedfair.ids import AGGREGATOR
from fedfair.plan.loading import load_plan
from fedfair.process.terminal import console, say, tell
from fedfair.results.loss_text import loss_text
from fedfair.store.atomic_file import write_whole

if TYPE_CHECKING:
    from fedfair.aggregation.evaluation_file import EvaluationRecord
    from fedfair.certificate.document import Certificate
    from fedfair.certificate.issue import IssueTerms
    from fedfair.plan.schema import Plan

app = typer.Typer()

MAX_EVALUATION_BYTES = 16 << 20
CERT_FOLDER = typer.Option(Path("cert"), "--cert-folder", help="Folder of the workspace's keys.")
AS_JSON = typer.Option(False, "--json", help="Print JSON.")
QUIET = typer.Option(False, "--quiet", "-q", help="Print warnings only.")


@app.callback(invoke_without_command=True)
def certificate_command(
    context: typer.Context,
    evaluation: Path = typer.Option(
        Path("save/evaluation.json"), "--evaluation", "-e", help="The evaluation's sums."
    ),
    plan_file: Path = typer.Option(Path("plan/plan.yaml"), "--plan", "-p", help="The plan that was run."),
    split: str = typer.Option(
        None, "--split", help="test, validation or train.", show_default="test, or else validation"
    ),
    delta: float = typer.Option(
        0.05, help="Probability that a statement about the population is wrong, 1e-12 to 0.5."
    ),
    method: str = typer.Option("binomial", help="Bound for the population: binomial, dkw-binomial or dkw."),
    group_sizes: str = typer.Option(
        None, "--group-sizes", help="Group sizes as shares, comma-separated.", show_default="the plan's, and 1"
    ),
    fewest: int = typer.Option(10, min=1, help="Minimum number of losses in a published range."),
    name: str = typer.Option(AGGREGATOR, "--name", "-n", help="The participant that signs."),
    cert_folder: Path = CERT_FOLDER,
    passphrase_file: Path | None = typer.Option(
        None, "--passphrase-file", help="File that holds the passphrase of the signing key."
    ),
    unsigned: bool = typer.Option(
        False, "--unsigned", help="Make an unsigned certificate, which anybody could have made."
    ),
    output: Path = typer.Option(Path("certificate.json"), "--output", "-o", help="Write the certificate here."),
    page: Path = typer.Option(Path("certificate.html"), "--page", help="Write the page for people here."),
    as_json: bool = AS_JSON,
    quiet: bool = QUIET,
) -> None:
    """Certify an evaluation as a signed file and a page."""
    if context.invoked_subcommand is not None:
        _refuse_misplaced(context)
        return
    from fedfair.certificate.document import to_text
    from fedfair.certificate.issue import draft
    from fedfair.certificate.page import certificate_page
    from fedfair.report.html import check_replaceable

    _check_places(output, page)
    check_replaceable(page)
    _check_certificate_file(output)
    plan = load_plan(plan_file)
    record = _evaluation_of(evaluation, plan, plan_file)
    terms = _terms(record, plan, split, delta, method, group_sizes, fewest)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    drafted = draft(record, plan, terms, issued_at=now)
    made = drafted if unsigned else _sealed(drafted, name, cert_folder, passphrase_file)
    drawn = certificate_page(made)
    write_whole(output, to_text(made))
    write_whole(page, drawn)
    _report(made, as_json=as_json, quiet=quiet)
    if not quiet and not as_json:
        say(f"written: {output}, {page}")


@app.command()
def verify(
    file: Path = typer.Argument(..., help="The certificate, certificate.json."),
    key: str = typer.Option(
        None, "--key", help="The issuer's public key, or a file that holds it.",
        show_default="from the plan's roster, or from cert/NAME/signing.pub",
    ),
    plan_file: Path = typer.Option(None, "--plan", "-p", help="Check that a run of this plan is certified."),
    model: Path = typer.Option(None, "--model", help="Check that this model is certified (safetensors)."),
    cert_folder: Path = CERT_FOLDER,
    unsigned: bool = typer.Option(False, "--unsigned", help="Check the figures only, without a signature."),
    as_json: bool = AS_JSON,
    quiet: bool = QUIET,
) -> None:  # fmt: skip
    """Verify a certificate offline: its figures, signature, plan and model."""
    from fedfair.api.certificates import verify_certificate

    found = verify_certificate(
        file, key=key, plan=plan_file, model=model, cert_folder=cert_folder, unsigned=unsigned
    )
    if unsigned and found.certificate.signature is not None:
        tell("warning: the SIGNATURE WAS NOT CHECKED: anybody could have made this", "bold red")
    _report(found.certificate, as_json=as_json, quiet=quiet)
    if not quiet and not as_json:
        console.print(Text(f"checked: {'; '.join(found.checked)}"))


def _refuse_misplaced(context: typer.Context) -> None:
    """Refuse options before the subcommand: it would not hear of them, and check less than it was asked to."""
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if source is not None and source.name == "COMMANDLINE":
            raise typer.BadParameter(
                f"write it after {context.invoked_subcommand}", param_hint=max(parameter.opts, key=len)
            )


def _check_places(output: Path, page: Path) -> None:
    for place in (output, page):
        if not place.parent.is_dir():
            raise CertificateError(f"{place}: the folder {place.parent} does not exist", "create it")
    if output.resolve() == page.resolve():
        raise CertificateError(f"--output and --page both name {output}", "name two files")


def _evaluation_of(path: Path, plan: Plan, plan_file: Path) -> EvaluationRecord:
    from fedfair.aggregation.evaluation_file import parse_evaluation
    from fedfair.plan.digest import format_digest
    from fedfair.training.known_digest import digest_of

    if not path.is_file():
        raise CertificateError(
            f"there is no evaluation {path}",
            "run `fedfair aggregator start` or `fedfair simulate --save save` first",
        )
    record = parse_evaluation(_read(path, MAX_EVALUATION_BYTES, "an evaluation"), str(path))
    digest = format_digest(digest_of(plan, plan_file))
    if record.plan_digest != digest:
        raise CertificateError(
            f"{path} is of a run of the plan {record.plan_digest}, {plan_file} is {digest}",
            "give the plan of that run with --plan",
        )
    return record


def _terms(
    record: EvaluationRecord,
    plan: Plan,
    split: str | None,
    delta: float,
    method: str,
    group_sizes: str | None,
    fewest: int,
) -> IssueTerms:
    from fedfair.aggregation.loss_histogram import SPLITS
    from fedfair.certificate.issue import IssueTerms, held_out_split
    from fedfair.fairness.population_bounds import METHODS
    from fedfair.plan.derived import reported_group_sizes

    chosen = held_out_split(record) if split is None else next((name for name in SPLITS if name == split), None)
    if chosen is None:
        raise typer.BadParameter(f"{split!r} is none of {', '.join(SPLITS)}", param_hint="--split")
    known = next((each for each in METHODS if each == method), None)
    if known is None:
        raise typer.BadParameter(f"{method!r} is none of {', '.join(METHODS)}", param_hint="--method")
    sizes = (*reported_group_sizes(plan), 1.0) if group_sizes is None else _shares(group_sizes)
    return IssueTerms(split=chosen, group_sizes=sizes, delta=delta, method=known, fewest=fewest)


def _shares(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(word) for word in text.split(","))
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is no list such as 0.1,0.3", param_hint="--group-sizes") from error


def _sealed(certificate: Certificate, name: str, cert_folder: Path, passphrase_file: Path | None) -> Certificate:
    from fedfair.certificate.seal import seal
    from fedfair.identity.store import load_signing_key
    from fedfair.process.passphrase import own_passphrase

    try:
        key = load_signing_key(cert_folder, name, own_passphrase(cert_folder, name, passphrase_file))
    except IdentityError as error:
        raise IdentityError(
            error.message, f"{error.remedy}; or make a certificate that nobody vouches for: --unsigned"
        ) from error
    return seal(certificate, name, key)


def _check_certificate_file(path: Path) -> None:
    from fedfair.certificate.document import MAX_BYTES, parse_certificate

    if path.is_dir():
        raise CertificateError(f"{path} is a folder", "name a file with --output")
    if path.exists():
        parse_certificate(_read(path, MAX_BYTES, "a certificate"), f"{path}, which would be replaced,")


def _read(path: Path, most: int, what: str) -> bytes:
    with path.open("rb") as source:
        content = source.read(most + 1)
    if len(content) > most:
        raise CertificateError(f"{path} has more than {most} bytes, so it is not {what}")
    return content


def _report(certificate: Certificate, *, as_json: bool, quiet: bool) -> None:
    from fedfair.certificate.sentences import in_words

    if certificate.signature is None:
        tell("warning: NOT SIGNED: anybody could have made this certificate", "bold red")
    if as_json:
        console.print_json(json.dumps(certificate.model_dump(mode="json", exclude_unset=True)))
        return
    if quiet:
        return
    words = in_words(certificate)
    console.print(Text(words.sample, style="bold"))
    console.print(Text(words.population, style="bold"))
    console.print(Text(" ".join(words.mixture)))
    console.print(Text(words.verdict, style="bold"))
    console.print(_table(certificate))
    console.print(Text("What this does not mean:"))
    for sentence in words.limits:
        console.print(Text(f"- {sentence}"))


def _table(certificate: Certificate) -> Table:
    from fedfair.certificate.sentences import at_most, confidence, guess_words, loss_unit, population_bound, share

    title = f"Mean loss of any group of at least this size, at most ({loss_unit(certificate)})"
    table = Table(title=title, title_justify="left")
    table.add_column("group size", justify="right")
    table.add_column(f"{certificate.n} evaluated", justify="right")
    if certificate.population is not None:
        table.add_column(f"population ({confidence(certificate)})", justify="right")
    for statement in certificate.statements:
        bound = population_bound(certificate, statement)
        claimed = () if certificate.population is None else ("nothing" if bound is None else at_most(bound),)
        table.add_row(share(statement.group_size), at_most(statement.sample[1]), *claimed)
    guessing = guess_words(certificate)
    table.caption = f"everybody {loss_text(certificate.mean)}" + (
        f"; uniform guess {guessing}" if guessing else ""
    )
    table.caption_justify = "left"
    return table
