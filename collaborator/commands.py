"""The collaborator's commands, for `python -m collaborator` and `fedfair collaborator`: parse, call, print.

What does the work is imported by the command that needs it: it brings torch, which takes seconds to load, and
`fedfair --help` imports this module too.
"""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from collaborator.link import Address
from collaborator.observer import Lines, Observer, Silent
from fedfair.errors import AbortedError, PrivacyError
from fedfair.report.terminal import DEBUG_HELP, console, error_console, host_and_port

if TYPE_CHECKING:
    from collaborator.preflight import Item
    from collaborator.preparation import Site

app = typer.Typer(
    help="Take part with this site's own data, which stay here.",
    epilog=DEBUG_HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

Name = Annotated[str | None, typer.Option("--name", "-n", help="This collaborator's name in the plan.")]
Config = Annotated[Path, typer.Option("--config", "-c", help="This site's own configuration.")]
PlanFile = Annotated[Path, typer.Option("--plan", "-p", help="The plan that this site approved.")]
Approval = Annotated[Path | None, typer.Option("--approval", help="The approval, if it is not where -c says.")]
Aggregator = Annotated[
    str | None, typer.Option("--aggregator", "-a", help="HOST:PORT of the aggregator, instead of the plan's.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show nothing but errors.")]
GiveUp = Annotated[
    float | None,
    typer.Option(
        "--give-up-after", min=0, help="Seconds without the aggregator after which to stop; never if absent."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]

DEFAULT_CONFIG = Path("collaborator.yaml")
DEFAULT_PLAN = Path("plan/plan.yaml")


@app.command()
def start(
    name: Name = None,
    config: Config = DEFAULT_CONFIG,
    plan: PlanFile = DEFAULT_PLAN,
    approval: Approval = None,
    aggregator: Aggregator = None,
    give_up_after: GiveUp = None,
    quiet: Quiet = False,
) -> None:
    """Connect to the aggregator and take part until the run has ended; come back after every interruption."""
    from collaborator.declining import decline
    from collaborator.participation import Terms, answers_of, participate
    from collaborator.preparation import find_site, keep_policy, make_ready
    from fedfair.learning.masked_sums import IN_THE_CLEAR, is_masked
    from fedfair.plan.policy import PolicyError

    site, logs = find_site(name, config, plan, approval), Path("logs")
    try:
        keep_policy(site)
        masked = () if is_masked(site.plan) else (IN_THE_CLEAR,)
        for warning in (*masked, *site.code_warnings, *site.identity().warnings):
            error_console.print(Text(warning, style="yellow"), soft_wrap=True)
        ready = make_ready(site)
    except (PolicyError, PrivacyError) as fault:
        decline(site, _address(site, aggregator), logs, fault)
        raise
    observer: Observer = Silent() if quiet else Lines(_say)
    for line in () if ready.account is None else ready.account.forecast:
        observer.note(f"privacy: {line}")
    terms = Terms(_address(site, aggregator), logs, give_up_after)
    answers = answers_of(ready)
    try:
        finished = asyncio.run(participate(ready, answers, terms, observer))
    except AbortedError as fault:
        if answers.busy:
            # The interpreter would wait for local training, which nobody wants any more, before it ended.
            _say(f"error: {fault.diagnostics()}")
            os._exit(1)
        raise
    if not quiet:
        console.print(Text(f"finished after {finished.rounds} rounds: {finished.outcome}"))


@app.command()
def check(
    name: Name = None,
    config: Config = DEFAULT_CONFIG,
    plan: PlanFile = DEFAULT_PLAN,
    approval: Approval = None,
    aggregator: Aggregator = None,
    as_json: AsJson = False,
) -> None:
    """See whether a start would work: files, data, approval, certificate, clock and connection."""
    from collaborator.preflight import check_site
    from collaborator.preparation import read_site

    site = read_site(name, config, plan, approval)
    items = check_site(site, _address(site, aggregator))
    failed = [item for item in items if not item.passed]
    if as_json:
        console.print_json(json.dumps({"ok": not failed, "items": [asdict(item) for item in items]}))
    else:
        console.print(_table(items))
    if failed:
        raise typer.Exit(1)


def _say(line: str) -> None:
    error_console.print(Text(line), soft_wrap=True)


def _table(items: tuple[Item, ...]) -> Table:
    table = Table("", "", box=None)
    # Digests are longer than a column; somebody has to compare them.
    for heading in ("found", "what to do"):
        table.add_column(heading, overflow="fold")
    for item in items:
        mark = Text("✓", style="green") if item.passed else Text("✗", style="bold red")
        table.add_row(mark, Text(item.name), Text(item.detail), Text(item.remedy))
    return table


def _address(site: Site, given: str | None) -> Address:
    stated = site.plan.federation.aggregator
    if given is None:
        return Address(stated.host, stated.port)
    return Address(*host_and_port(given, "--aggregator", 1))
