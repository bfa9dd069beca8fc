"""`fedfair data`: checks of a site's own records. Nothing leaves the site, and no certificate is needed."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from fedfair.cli.data_withdrawal import lineage, withdraw, withdrawal_notice
from fedfair.process.exit_status import ExitStatus
from fedfair.process.terminal import DEBUG_HELP, console, say

if TYPE_CHECKING:
    from fedfair.tables.column_check import CategoryCheck, DataCheck, NumberCheck

app = typer.Typer(no_args_is_help=True, epilog=DEBUG_HELP)

Name = Annotated[str | None, typer.Option("--name", "-n", help="This collaborator's name in the plan.")]
Config = Annotated[Path, typer.Option("--config", "-c", help="This site's own configuration.")]
PlanFile = Annotated[Path, typer.Option("--plan", "-p", help="The plan.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]

app.command()(withdraw)
app.command()(lineage)
app.command()(withdrawal_notice)

DEFAULT_CONFIG = Path("collaborator.yaml")
DEFAULT_PLAN = Path("plan/plan.yaml")
DEFAULT_WORDS = Path("data-description.yaml")


@app.command()
def check(
    name: Name = None, config: Config = DEFAULT_CONFIG, plan: PlanFile = DEFAULT_PLAN, as_json: AsJson = False
) -> None:
    """Describe this site's records column by column as the plan reads them, with what is wrong or odd."""
    from collaborator.site_data import checked_data

    found = checked_data(name, config, plan)
    if as_json:
        document = {"ok": not found.errors, "warnings": list(found.warnings)} | asdict(found)
        console.print_json(json.dumps(document))
    else:
        _show(found)
    if found.errors:
        raise typer.Exit(ExitStatus.REFUSED)


@app.command()
def describe(
    name: Name = None,
    config: Config = DEFAULT_CONFIG,
    plan: PlanFile = DEFAULT_PLAN,
    words: Annotated[Path, typer.Option("--words", help="What this site says of its records.")] = DEFAULT_WORDS,
    draft: Annotated[
        bool, typer.Option("--draft", help="Write a draft of these words, and nothing else.")
    ] = False,
    cert_folder: Annotated[Path, typer.Option("--cert-folder", help="Folder of this site's key.")] = Path("cert"),
    passphrase_file: Annotated[
        Path | None, typer.Option("--passphrase-file", help="File that holds the passphrase of this site's keys.")
    ] = None,
) -> None:
    """Sign this site's own words about its records, for the passport of the model. No record is read."""
    from collaborator.data_description import write_description, write_draft

    if draft:
        write_draft(words)
        say(f"written: {words}; replace every line, then run this again without --draft")
        return
    written = write_description(name, config, plan, words, cert_folder, passphrase_file)
    say(f"written: {written}; send it to the lead, who puts it into the passport")


def _show(found: DataCheck) -> None:
    sizes = ", ".join(f"{count} {name}" for name, count in found.splits.items())
    say(f"{found.records} records{f': {sizes}' if sizes else ''}")
    if found.withdrawn:
        say(f"{found.withdrawn} persons have withdrawn at this site; none of their records is among these")
    if found.labels:
        total = sum(found.labels.values())
        told = ", ".join(f"{name} {_share(count, total)}" for name, count in found.labels.items())
        say(f"labels: {told}")
    if found.numeric:
        console.print(_numbers(found.numeric))
    if found.categories:
        console.print(_categories(found.categories))
    if found.unused:
        say(f"not used by the plan: {', '.join(found.unused)}")
    for warning in found.warnings:
        say(f"warning: {warning}", "yellow")
    for error in found.errors:
        say(f"error: {error}", "bold red")
    if not found.errors:
        say("A start would read these records. Nothing was sent.")


def _numbers(columns: tuple[NumberCheck, ...]) -> Table:
    table = Table(title="Numeric columns", title_justify="left", box=None)
    table.add_column("column", overflow="fold")
    for heading in ("values", "missing", "least", "a quarter", "median", "three quarters", "greatest"):
        table.add_column(heading, justify="right")
    for heading in ("mean", "spread", "outside of its range"):
        table.add_column(heading, justify="right")
    for column in columns:
        low, middle, high = column.quartiles or (None, None, None)
        places = (column.least, low, middle, high, column.greatest, column.mean, column.spread)
        outside = "-" if column.range is None else str(column.outside)
        missing = _share(column.missing, column.missing + column.present)
        figures = (_number(place) for place in places)
        table.add_row(Text(column.name), str(column.present), missing, *figures, outside)
    return table


def _categories(columns: tuple[CategoryCheck, ...]) -> Table:
    table = Table(title="Categorical columns", title_justify="left", box=None)
    for heading in ("column", "shares of its values", "missing"):
        table.add_column(heading, overflow="fold")
    for column in columns:
        total = sum(column.counts.values()) + column.missing
        shares = ", ".join(f"{value} {_share(count, total)}" for value, count in column.counts.items())
        table.add_row(Text(column.name), Text(shares), _share(column.missing, total))
    return table


def _share(part: int, whole: int) -> str:
    from fedfair.tables.profile import share

    return share(part, whole)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
