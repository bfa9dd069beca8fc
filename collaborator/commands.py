"""The collaborator's commands, for `python -m collaborator` and `fedfair collaborator`: parse, call, print.

What does the work is imported by the command that needs it: it brings torch, which takes seconds to load, and
`fedfair --help` imports this module too.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from collaborator.link import Address
from collaborator.notices import PrivacyForecast, SummaryUnwritten
from collaborator.observer import SilentSiteObserver, SiteLines, SiteObserver
from fedfair.errors import AbortedError, PrivacyError, StoppedError
from fedfair.policy.proxy import choose_route
from fedfair.process.environment import EnvironmentCommand
from fedfair.process.exit_status import exit_status
from fedfair.process.stopping import as_service
from fedfair.process.terminal import DEBUG_HELP, console, error_console, host_and_port

if TYPE_CHECKING:
    from collaborator.preflight import CheckedStep
    from collaborator.preparation import PreparedSite

app = typer.Typer(
    help="Run this site's collaborator. Its data stay here.",
    epilog=DEBUG_HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

Name = Annotated[str | None, typer.Option("--name", "-n", help="This collaborator's name in the plan.")]
Config = Annotated[Path, typer.Option("--config", "-c", help="This site's own configuration.")]
PlanFile = Annotated[Path, typer.Option("--plan", "-p", help="The plan that this site approved.")]
Approval = Annotated[
    Path | None, typer.Option("--approval", help="The approval, if it is not at the path in -c's file.")
]
Aggregator = Annotated[
    str | None, typer.Option("--aggregator", "-a", help="HOST:PORT of the aggregator, instead of the plan's.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show only errors.")]
GiveUp = Annotated[
    float, typer.Option("--give-up-after", min=0, help="Stop after this many seconds without the aggregator.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]

DEFAULT_CONFIG = Path("collaborator.yaml")
DEFAULT_PLAN = Path("plan/plan.yaml")
LOGS = Path("logs")
GIVE_UP_SECONDS = 3 * 24 * 3600.0
"""A weekend. A site that missed the end of its run must not call for ever."""


@app.command(cls=EnvironmentCommand)
@as_service("this site")
def start(
    name: Name = None,
    config: Config = DEFAULT_CONFIG,
    plan: PlanFile = DEFAULT_PLAN,
    approval: Approval = None,
    aggregator: Aggregator = None,
    give_up_after: GiveUp = GIVE_UP_SECONDS,
    quiet: Quiet = False,
) -> None:
    """Connect to the aggregator and take part until the run ends. Reconnect after interruptions."""
    _take_part(name, config, plan, approval, aggregator, give_up_after, quiet=quiet)


@app.command(cls=EnvironmentCommand)
def check(
    name: Name = None,
    config: Config = DEFAULT_CONFIG,
    plan: PlanFile = DEFAULT_PLAN,
    approval: Approval = None,
    aggregator: Aggregator = None,
    as_json: AsJson = False,
) -> None:
    """Check what a start needs: files, data, approval, certificate, clock and connection."""
    from collaborator.preflight import check_site
    from collaborator.preparation import find_site

    site = find_site(name, config, plan, approval)
    items = check_site(site, partial(_address, site, aggregator), LOGS)
    failed = [item for item in items if not item.passed]
    if as_json:
        console.print_json(json.dumps({"ok": not failed, "items": [_document(item) for item in items]}))
    else:
        console.print(_table(items))
        for line in itertools.chain.from_iterable(_data_lines(item) for item in items):
            console.print(line, soft_wrap=True)
    if failed:
        # As a start would end, which meets the first of them.
        raise typer.Exit(failed[0].status)


def _take_part(
    name: str | None,
    config: Path,
    plan: Path,
    approval: Path | None,
    aggregator: str | None,
    give_up_after: float | None,
    *,
    quiet: bool,
) -> None:
    from collaborator.data_history import keep_summary, summary_path
    from collaborator.participation import ParticipationTerms, participate, worker_of
    from collaborator.preparation import find_site, keep_policy, make_ready
    from collaborator.withdrawal import withdraw
    from fedfair.aggregation.masking_terms import IN_THE_CLEAR
    from fedfair.plan.derived import is_masked
    from fedfair.policy.plan_check import PolicyError

    site, logs = find_site(name, config, plan, approval), LOGS
    address = _address(site, aggregator)
    try:
        keep_policy(site)
        masked = () if is_masked(site.plan) else (IN_THE_CLEAR,)
        for warning in (*masked, *site.code_warnings, *site.identity().warnings):
            error_console.print(Text(warning, style="yellow"), soft_wrap=True)
        ready = make_ready(site)
    except (PolicyError, PrivacyError) as fault:
        withdraw(site, address, logs, fault)
        raise
    observer: SiteObserver = SilentSiteObserver() if quiet else SiteLines(_say)
    for line in () if ready.account is None else ready.account.forecast:
        observer.noticed(PrivacyForecast(line))
    terms = ParticipationTerms(address, logs, give_up_after)
    worker = worker_of(ready, terms.logs)
    try:
        keep_summary(site, ready.profile, datetime.now(UTC))
    except OSError as fault:
        observer.noticed(SummaryUnwritten(summary_path(site), str(fault)))
    try:
        finished = asyncio.run(participate(ready, worker, terms, observer))
    except (AbortedError, StoppedError) as fault:
        if worker.standing.busy:
            # The interpreter would wait for local training, which nobody wants any more, before it ended.
            _say(fault.diagnostics())
            os._exit(exit_status(fault))
        raise
    if not quiet:
        console.print(Text(f"finished after {finished.rounds} rounds: {finished.outcome}"))


def _say(line: str) -> None:
    error_console.print(Text(line), soft_wrap=True)


def _table(items: tuple[CheckedStep, ...]) -> Table:
    table = Table("", "", box=None)
    # Digests are longer than a column; somebody has to compare them.
    for heading in ("found", "what to do"):
        table.add_column(heading, overflow="fold")
    for item in items:
        mark = Text("✓", style="green") if item.passed else Text("✗", style="bold red")
        table.add_row(mark, Text(item.name), Text(item.detail), Text(item.remedy))
    return table


def _document(item: CheckedStep) -> dict[str, object]:
    """Return an item for programs; only the one about the data has what belongs to data."""
    document = asdict(item)
    for name in ("profile", "last_run"):
        if document[name] is None:
            del document[name]
    return document


def _data_lines(item: CheckedStep) -> Iterator[Text]:
    """Yield one line for the labels, and one for every column that has something to say."""
    profile = item.profile
    if profile is None:
        return
    if profile.one_class is None:
        yield Text(f"labels: {profile.label_words}")
    else:
        warning = f"labels: all records are of class {profile.one_class}; check the label column and label_values"
        yield Text(warning, style="yellow")
    for column in profile.columns:
        if column.words:
            yield Text(f"column {column.name}: {column.words}", style="yellow" if column.is_doubtful else "")
    if item.last_run is not None and item.last_run.words:
        yield Text(f"data: {item.last_run.words}")


def _address(site: PreparedSite, given: str | None) -> Address:
    stated = site.plan.federation.aggregator
    host, port = (stated.host, stated.port) if given is None else host_and_port(given, "--aggregator", 1)
    return Address(host, port, choose_route(host, port, site.config.network.proxy, os.environ))
