"""The collaborator's commands, for `python -m collaborator` and `fedfair collaborator`: parse, call, print.

What does the work is imported by the command that needs it: it brings torch, which takes seconds to load, and
`fedfair --help` imports this module too.

Another process of this site may already do what this one is started for, which is said at once: whether both mean
the same plan is known only when plan, model and records are read, and then the lock of the plan's own files
decides (`write_ahead.py`).
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from collaborator.standing.command import serve
from fedfair.consent.inbox import study_folder
from fedfair.errors import AbortedError, DataError, PrivacyError, StoppedError
from fedfair.ids import AGGREGATOR
from fedfair.news.event import LoggedEvent, LogLevel
from fedfair.news.log import JsonLog, LogChoice, LogFormat, LogFormatOption, LogLevelOption, json_log
from fedfair.news.processors import Processor, StatusKeeper, ignore, in_turn, json_lines, text_lines
from fedfair.news.site import PrivacyForecast, RecordsChanged, RecordsWithheld, SiteStatusServed, SummaryUnwritten
from fedfair.policy.proxy import choose_route
from fedfair.policy.site_config import load_site_config
from fedfair.process.environment import EnvironmentCommand
from fedfair.process.exit_status import ExitStatus, exit_status
from fedfair.process.passphrase import FILE_HELP, own_passphrase
from fedfair.process.service_pipe import taken_passphrase
from fedfair.process.stopping import as_service
from fedfair.process.terminal import DEBUG_HELP, console, error_console, host_and_port
from fedfair.results.document import Json
from fedfair.store.atomic_file import write_whole
from fedfair.tracking.targets import Track, TrackTarget, track_targets
from fedfair.watching.place import StatusCertificate, StatusKey, StatusPlace, asked_place, utc_now
from fedfair.watching.run_status import RunStatus
from fedfair.wire.calling import Address

if TYPE_CHECKING:
    from collaborator.participation import ParticipationTerms
    from collaborator.preflight import CheckedStep
    from collaborator.preparation import PreparedSite, Readiness
    from collaborator.worker import Worker
    from fedfair.training.across_devices import SiteProcesses
    from fedfair.wire.frames import Finished


from fedfair.store.lock import holder_of

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
Study = Annotated[
    str | None,
    typer.Option("--study", help="A study in this site's inbox: its plan, approval and logs, not those of -p."),
]
ServicePipe = Annotated[
    int | None,
    # For `serve`, which starts this command; nothing that an operator types.
    typer.Option("--service-pipe", hidden=True, help="Take the passphrase from this pipe, and end with it."),
]
PassphraseFile = Annotated[Path | None, typer.Option("--passphrase-file", help=FILE_HELP)]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show only errors.")]
GiveUp = Annotated[
    float, typer.Option("--give-up-after", min=0, help="Stop after this many seconds without the aggregator.")
]
Status = Annotated[
    str | None,
    typer.Option("--status", help="HOST:PORT to serve this site's status on; port 0 lets the system choose."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]

Model = Annotated[Path, typer.Option("--model", help="The saved federated model.")]

By = Annotated[
    list[str],
    typer.Option(
        "--by",
        help="Column of this site's own records, used by the plan or not; age:4 divides numbers into quarters. "
        "Without any: the plan's categories.",
    ),
]
Threshold = Annotated[
    float | None,
    typer.Option(
        "--threshold",
        min=0.0,
        max=1.0,
        help="Take records for class 1 from this probability on, not from one half.",
    ),
]
MinGroup = Annotated[
    int | None,
    typer.Option(
        "--min-group", min=1, help="Hide groups of fewer records than this, not than the plan's min_group."
    ),
]
GroupsFile = Annotated[Path | None, typer.Option("--output", "-o", help="Write the figures here as CSV.")]

TunedFile = Annotated[Path, typer.Option("--output", "-o", help="Write the fine-tuned model here.")]
TuningRounds = Annotated[int, typer.Option("--rounds", min=1, max=100_000, help="Rounds of local training.")]
TuningRate = Annotated[float, typer.Option("--learning-rate", min=1e-12, help="Size of every step.")]
TunedGroup = Annotated[
    float, typer.Option("--group-size", min=0.001, max=1.0, help="Share of the worst group that must gain.")
]

DEFAULT_MODEL = Path("save/last.safetensors")
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
    study: Study = None,
    aggregator: Aggregator = None,
    give_up_after: GiveUp = GIVE_UP_SECONDS,
    status: Status = None,
    status_certificate: StatusCertificate = None,
    status_key: StatusKey = None,
    passphrase_file: PassphraseFile = None,
    service_pipe: ServicePipe = None,
    quiet: Quiet = False,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_level: LogLevelOption = LogLevel.INFO,
    track: Track = None,
) -> None:
    """Connect to the aggregator and take part until the run ends. Reconnect after interruptions.

    Several GPUs: torchrun --nproc-per-node 2 -m collaborator start ...; docs/how-to/gpu.md has the whole line.
    """
    passphrase = None if service_pipe is None else taken_passphrase(service_pipe)
    if study is None:
        _warn_of_another(name, config)
    from collaborator.preparation import find_site
    from fedfair.training.across_devices import asked_processes

    place = _place_of(study, config, plan, approval)

    processes = asked_processes(os.environ)
    if processes is not None and processes.rank > 0:
        from collaborator.device_rank import compute_along

        if not compute_along(find_site(name, config, *place), processes):
            raise typer.Exit(ExitStatus.FAULT)
        return
    shown_at = asked_place(status, status_certificate, status_key)
    choice, targets = LogChoice(log_format, log_level), track_targets(track)
    found = find_site(name, config, *place)
    site = _unlocked(found, passphrase_file) if service_pipe is None else replace(found, passphrase=passphrase)
    terms = TakingPart(aggregator, give_up_after, _logs(site, config), targets)
    _take_part(site, terms, choice, quiet=quiet, place=shown_at, processes=processes)


@app.command(cls=EnvironmentCommand)
def check(
    name: Name = None,
    config: Config = DEFAULT_CONFIG,
    plan: PlanFile = DEFAULT_PLAN,
    approval: Approval = None,
    study: Study = None,
    aggregator: Aggregator = None,
    passphrase_file: PassphraseFile = None,
    as_json: AsJson = False,
) -> None:
    """Check what a start needs: files, data, approval, certificate, clock and connection."""
    from collaborator.preflight import check_site
    from collaborator.preparation import find_site

    site = _unlocked(find_site(name, config, *_place_of(study, config, plan, approval)), passphrase_file)
    items = check_site(site, partial(_address, site, aggregator), _logs(site, config))
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


app.command(cls=EnvironmentCommand)(serve)


@app.command()
def compare(
    config: Config = DEFAULT_CONFIG,
    plan: PlanFile = DEFAULT_PLAN,
    model: Model = DEFAULT_MODEL,
    approval: Approval = None,
    as_json: AsJson = False,
) -> None:
    """Compare a federated model with what this site could have alone, on its own held-out records."""
    from collaborator.site_records import site_records
    from collaborator.site_tables import comparison_document, comparison_table
    from fedfair.simulation.site_comparison import compare_at_site

    own = site_records(config, plan, model, approval)
    with error_console.status("training alone"):
        found = compare_at_site(own.plan, own.participant, own.splits, own.code, model)
    if as_json:
        console.print_json(json.dumps(comparison_document(found)))
        return
    console.print(comparison_table(found))
    for sentence in found.omitted:
        console.print(Text(sentence), soft_wrap=True)
    console.print(Text("Nothing was sent."), soft_wrap=True)


@app.command()
def groups(
    config: Config = DEFAULT_CONFIG,
    plan: PlanFile = DEFAULT_PLAN,
    model: Model = DEFAULT_MODEL,
    approval: Approval = None,
    *,
    by: By = [],  # noqa: B006 - typer copies it
    threshold: Threshold = None,
    min_group: MinGroup = None,
    output: GroupsFile = None,
    as_json: AsJson = False,
) -> None:
    """Show how a federated model serves named groups of this site's own held-out records. Nothing is sent."""
    from collaborator.group_tables import group_document, group_notes, group_text, group_view
    from collaborator.site_records import site_records
    from fedfair.plan.loading import load_plan
    from fedfair.simulation.site_groups import AskedGroups, check_columns, groups_at_site, usual_columns
    from fedfair.tables.column_groups import asked_columns

    if output is not None:
        _check_new(output)
    stated = load_plan(plan)
    asked = AskedGroups(asked_columns(by) or usual_columns(stated), threshold, min_group)
    check_columns(stated, asked.columns)
    names = [column.name for column in asked.columns]
    own = site_records(config, plan, model, approval, evaluates=True, keep=names)
    with error_console.status("evaluating"):
        found = groups_at_site(own.plan, own.participant, own.splits, own.code, model, asked, own.table)
    if output is not None:
        write_whole(output, group_text(found))
    if as_json:
        console.print_json(json.dumps(group_document(found)))
        return
    for table in found.tables:
        console.print(group_view(found, table))
    for sentence in group_notes(found):
        console.print(Text(sentence), soft_wrap=True)


@app.command()
def personalise(
    config: Config = DEFAULT_CONFIG,
    plan: PlanFile = DEFAULT_PLAN,
    model: Model = DEFAULT_MODEL,
    approval: Approval = None,
    *,
    output: TunedFile,
    rounds: TuningRounds = 50,
    learning_rate: TuningRate = 0.01,
    group_size: TunedGroup = 0.1,
    as_json: AsJson = False,
) -> None:
    """Fine-tune a federated model on this site's own records; keep it only if its own worst group gains."""
    from collaborator.site_records import site_records
    from collaborator.site_tables import personalised_document, personalised_lines
    from fedfair.run.kept_file import write_kept
    from fedfair.run.saved_model import save_model
    from fedfair.simulation.personalisation import FineTuning, personalise

    _check_new(output)
    own = site_records(config, plan, model, approval)
    terms = FineTuning(rounds, learning_rate, group_size)
    with error_console.status("fine-tuning"):
        found = personalise(own.plan, own.participant, own.splits, own.code, model, terms)
    if found.round:
        save_model(output, found.layout, found.model, found.origin)
        if found.kept is not None:
            write_kept(output, found.model, found.kept)
    if as_json:
        console.print_json(json.dumps(personalised_document(found)))
        return
    for line in personalised_lines(found, terms, output):
        console.print(Text(line), soft_wrap=True)


def _check_new(output: Path) -> None:
    """Refuse before the work a place where no new file can be."""
    if output.exists() or not output.parent.is_dir():
        fault = "exists" if output.exists() else f"the folder {output.parent} does not exist"
        raise DataError(f"{output}: {fault}", "name a new file in a folder that exists")


def _warn_of_another(name: str | None, config: Path) -> None:
    """Say at once that this site runs already: to read plan, model and records takes a while."""
    if name is None and not config.exists():
        return
    words = other_process(config.parent / "state", name or load_site_config(config).collaborator)
    if words:
        error_console.print(Text(words, style="yellow"), soft_wrap=True)


def _unlocked(site: PreparedSite, passphrase_file: Path | None) -> PreparedSite:
    """Return the site with the passphrase of its keys, where they are encrypted."""
    return replace(site, passphrase=own_passphrase(site.cert_folder, site.participant, passphrase_file))


def _place_of(study: str | None, config: Path, plan: Path, approval: Path | None) -> tuple[Path, Path | None, str]:
    """Return plan, approval and name of a study in the inbox; plan and approval as given where none is named."""
    if study is None:
        return plan, approval, ""
    folder = study_folder(config.parent, study)
    return folder.plan, folder.approval, folder.name


def _logs(site: PreparedSite, config: Path) -> Path:
    return study_folder(config.parent, site.study).logs if site.study else LOGS


@dataclass(frozen=True, slots=True)
class TakingPart:
    """The options of a start that say with whom, for how long and where it is written down.

    Attributes:
        aggregator: HOST:PORT instead of the plan's; None for the plan's.
        give_up_after: seconds without the aggregator.
        logs: the folder of this site's logs.
        targets: where the run is tracked.
    """

    aggregator: str | None
    give_up_after: float | None
    logs: Path
    targets: tuple[TrackTarget, ...]


def _take_part(
    site: PreparedSite,
    taking_part: TakingPart,
    choice: LogChoice,
    *,
    quiet: bool,
    place: StatusPlace | None,
    processes: SiteProcesses | None = None,
) -> None:
    from collaborator.participation import ParticipationTerms, worker_of
    from collaborator.preparation import keep_policy, make_ready
    from collaborator.withdrawal import withdraw
    from fedfair.aggregation.masking_terms import IN_THE_CLEAR
    from fedfair.plan.derived import is_masked
    from fedfair.policy.plan_check import PolicyError

    log = json_log(choice)
    address, logs = _address(site, taking_part.aggregator), taking_part.logs
    try:
        keep_policy(site)
        masked = () if is_masked(site.plan) else (IN_THE_CLEAR,)
        for warning in (*masked, *site.code_warnings, *site.secret_warnings, *site.identity().warnings):
            _warn(warning, choice, log)
        ready = make_ready(site, processes)
    except (PolicyError, PrivacyError) as fault:
        withdraw(site, address, logs, fault)
        raise
    publish = _shown(choice, log, quiet=quiet)
    for line in () if ready.account is None else ready.account.forecast:
        publish(PrivacyForecast(line))
    terms = ParticipationTerms(address, logs, taking_part.give_up_after, taking_part.targets)
    worker = worker_of(ready, terms.logs, publish)
    if log is not None:
        log.run_id = worker.held.run_id
    _look_at_records(site, ready, publish)
    try:
        finished = asyncio.run(_watched_part(ready, worker, terms, publish, place))
    except (AbortedError, StoppedError) as fault:
        if worker.sums.busy:
            # The interpreter would wait for local training, which nobody wants any more, before it ended.
            (_say_fault if log is None else log.failed)(fault)
            os._exit(exit_status(fault))
        raise
    _end_processes(ready)
    if log is not None:
        ended: dict[str, Json] = {"state": "finished", "rounds_done": int(finished.rounds)}
        words = f"finished after {finished.rounds} rounds: {finished.outcome}"
        log.event(LoggedEvent("run_ended", LogLevel.INFO, words, ended))
    elif not quiet:
        console.print(Text(f"finished after {finished.rounds} rounds: {finished.outcome}"))


def _look_at_records(site: PreparedSite, ready: Readiness, publish: Processor) -> None:
    """Say which records are too few and which have changed since the last start, and remember them."""
    from collaborator.data_history import compare_with_last_run, keep_summary, summary_path

    for words in ready.withheld:
        publish(RecordsWithheld(words))
    now = datetime.now(UTC)
    compared = compare_with_last_run(site, ready.profile, now)
    if compared.changes:
        publish(RecordsChanged(compared.words))
    try:
        keep_summary(site, ready.profile, now)
    except OSError as fault:
        publish(SummaryUnwritten(summary_path(site), str(fault)))


def _end_processes(ready: Readiness) -> None:
    """Let the other processes of this site end, where there are others."""
    if ready.group is not None:
        ready.group.end()


async def _watched_part(
    ready: Readiness,
    worker: Worker,
    terms: ParticipationTerms,
    publish: Processor,
    place: StatusPlace | None,
) -> Finished:
    """Take part, and serve the status of it where that was asked for."""
    from collaborator.participation import participate

    if place is None:
        return await participate(ready, worker, terms, publish)
    from fedfair.watching.pages import watched

    keeper = StatusKeeper(initial_status(ready, utc_now()), utc_now)
    shown = in_turn(publish, keeper)

    def announce(address: str) -> None:
        shown(SiteStatusServed(address))

    async with watched(place, lambda: keeper.status, utc_now, announce):
        try:
            return await participate(ready, worker, terms, shown)
        finally:
            keeper.close()


def initial_status(ready: Readiness, now: datetime) -> RunStatus:
    """Return the status of a site that is about to connect."""
    site = ready.site
    return RunStatus(
        role="collaborator",
        name=site.participant,
        federation=site.plan.federation.name,
        rounds_total=site.plan.training.rounds,
        worst_group_size=site.plan.objective.worst_group_size,
        loss_unit=site.plan.task.loss.unit,
        sites=(AGGREGATOR,),
        started=now,
        awaited={AGGREGATOR: now},
        certificate_ends=site.identity().certificate.not_valid_after_utc,
    )


def _shown(choice: LogChoice, log: JsonLog | None, *, quiet: bool) -> Processor:
    if quiet:
        return ignore
    return text_lines(_say, choice.level) if log is None else json_lines(log)


def _warn(words: str, choice: LogChoice, log: JsonLog | None) -> None:
    if log is not None:
        log.doubt("start_warned", words)
    elif choice.level.includes(LogLevel.WARNING):
        error_console.print(Text(words, style="yellow"), soft_wrap=True)


def _say_fault(fault: AbortedError | StoppedError) -> None:
    _say(fault.diagnostics())


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


def other_process(state: Path, name: str) -> str:
    """Return what is said of another process that holds files of this site; empty where there is none.

    Args:
        state: the folder of the site's state.
        name: the site's.
    """
    for path in sorted(state.glob(f"{name}-*.lock")):
        try:
            process = holder_of(path)
        except OSError:
            # It is gone, or not ours to open; the start itself finds out.
            continue
        if process is not None:
            return f"process {process} already runs as {name} and holds {path}; if it is of this plan, end it"
    return ""
