"""The aggregator's commands, for `python -m aggregator` and `fedfair aggregator`: parse, call, print."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from aggregator.address import Listen
from aggregator.assembly import EndTerms, unnotified
from aggregator.console import RunConsole
from aggregator.listening import run_serving
from aggregator.malloc import use_one_heap
from aggregator.outcome import Ending, EndState, write_result
from aggregator.preparation import Run, Start
from aggregator.server import serve, write_ready_file
from fedfair.errors import AbortedError, FedfairError, StateError, StoppedError
from fedfair.ids import AGGREGATOR
from fedfair.news.event import LogLevel
from fedfair.news.log import LogChoice, LogFormat, LogFormatOption, LogLevelOption
from fedfair.news.processors import Processor, StatusKeeper, in_turn, text_lines
from fedfair.news.progress_pipe import ProgressPipe
from fedfair.news.run import StatusServed
from fedfair.plan.derived import trains
from fedfair.plan.digest import format_digest
from fedfair.process.environment import EnvironmentCommand
from fedfair.process.passphrase import FILE_HELP, own_passphrase
from fedfair.process.stopping import as_service, uninterrupted
from fedfair.process.terminal import DEBUG_HELP, host_and_port
from fedfair.results.document import ResultDocument, UnfinishedResult
from fedfair.rounds.exit_reasons import ExitReason
from fedfair.tracking.run_tracking import RunTracking
from fedfair.tracking.targets import Track, TrackTarget, track_targets
from fedfair.watching.place import StatusCertificate, StatusKey, StatusPlace, asked_place, utc_now
from fedfair.watching.run_status import RunStatus

app = typer.Typer(
    help="Run the aggregator, which sums what the collaborators send and sees nobody's data.",
    epilog=DEBUG_HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.callback()
def group() -> None:
    """Keep `start` a word of its own, although there is only one command."""


class Restored(enum.Enum):
    """The operator's choice where an older copy of the journal was restored."""

    STOP = "stop"
    CONTINUE = "continue"


PlanFile = Annotated[Path, typer.Option("--plan", "-p", help="The plan that every site approved.")]
CertFolder = Annotated[Path, typer.Option("--cert-folder", help="Folder of this host's identity.")]
ListenOn = Annotated[
    str | None,
    typer.Option("--listen", help="HOST:PORT to listen on instead of the plan's; port 0 lets the system choose."),
]
ReadyFile = Annotated[
    Path | None,
    typer.Option(
        "--ready-file", help="File to write one JSON line with the port to, once connections are accepted."
    ),
]
PipeNumber = Annotated[
    int | None,
    # For the program that starts this one, such as the demonstration; nothing that an operator types.
    typer.Option("--progress-pipe", hidden=True, help="Write one JSON line for each sum to this open pipe."),
]
Status = Annotated[
    str | None,
    typer.Option("--status", help="HOST:PORT to serve the status of the run on; port 0 lets the system choose."),
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Discard the run that is recorded here and begin a new one.")]
ModelFile = Annotated[Path, typer.Option("--model", help="The saved model (safetensors).")]
AfterRestore = Annotated[
    Restored,
    typer.Option(
        "--after-restore",
        help="What to do if the sites know more rounds than the journal, as after a restore "
        "of an older save/. 'stop' sums nothing; 'continue' repeats those rounds.",
    ),
]
TellFor = Annotated[
    float | None,
    typer.Option(
        "--tell-for",
        min=0,
        help="Seconds to listen after the end for sites that have not acknowledged it. By default the plan's "
        "reconnect_grace_seconds; 45 where the run was over before. Ctrl-C or SIGTERM ends the wait.",
    ),
]
PassphraseFile = Annotated[Path | None, typer.Option("--passphrase-file", help=FILE_HELP)]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show only warnings and errors.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON at the end.")]

DEFAULT_PLAN = Path("plan/plan.yaml")
DEFAULT_CERT_FOLDER = Path("cert")
DEFAULT_MODEL = Path("save/last.safetensors")


@app.command(cls=EnvironmentCommand)
@as_service("the aggregator")
def start(
    plan: PlanFile = DEFAULT_PLAN,
    cert_folder: CertFolder = DEFAULT_CERT_FOLDER,
    listen: ListenOn = None,
    ready_file: ReadyFile = None,
    fresh: Fresh = False,
    after_restore: AfterRestore = Restored.STOP,
    tell_for: TellFor = None,
    status: Status = None,
    status_certificate: StatusCertificate = None,
    status_key: StatusKey = None,
    passphrase_file: PassphraseFile = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
    progress_pipe: PipeNumber = None,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_level: LogLevelOption = LogLevel.INFO,
    track: Track = None,
) -> None:
    """Start the aggregator in the federation's folder and run to the end.

    After a stop or a crash, another start resumes after the last recorded round.
    """
    repeats_rounds = after_restore is Restored.CONTINUE
    secret = own_passphrase(cert_folder, AGGREGATOR, passphrase_file)
    _carry(
        Start(plan, Path(), cert_folder, fresh=fresh, repeats_rounds=repeats_rounds, passphrase=secret),
        listen,
        ready_file,
        tell_for=tell_for,
        quiet=quiet,
        as_json=as_json,
        progress_pipe=progress_pipe,
        place=asked_place(status, status_certificate, status_key),
        choice=LogChoice(log_format, log_level),
        targets=track_targets(track),
    )


@app.command(cls=EnvironmentCommand)
@as_service("the aggregator")
def evaluate(
    plan: PlanFile = DEFAULT_PLAN,
    model: ModelFile = DEFAULT_MODEL,
    cert_folder: CertFolder = DEFAULT_CERT_FOLDER,
    listen: ListenOn = None,
    ready_file: ReadyFile = None,
    status: Status = None,
    status_certificate: StatusCertificate = None,
    status_key: StatusKey = None,
    passphrase_file: PassphraseFile = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_level: LogLevelOption = LogLevel.INFO,
    track: Track = None,
) -> None:
    """Have the collaborators evaluate a saved model, with the sums of a run and without training.

    Collaborators start as for a run. The result goes to the folder `evaluation`.
    """
    # Nothing of an earlier evaluation is continued: it may have been of another model.
    secret = own_passphrase(cert_folder, AGGREGATOR, passphrase_file)
    start = Start(plan, Path("evaluation"), cert_folder, fresh=True, model=model, passphrase=secret)
    _carry(
        start,
        listen,
        ready_file,
        quiet=quiet,
        as_json=as_json,
        place=asked_place(status, status_certificate, status_key),
        choice=LogChoice(log_format, log_level),
        targets=track_targets(track),
    )


def _carry(
    start: Start,
    listen: str | None,
    ready_file: Path | None,
    *,
    quiet: bool,
    as_json: bool,
    place: StatusPlace | None,
    choice: LogChoice,
    targets: Sequence[TrackTarget],
    progress_pipe: int | None = None,
    tell_for: float | None = None,
) -> None:
    """Prepare, drive to the end, write the result and say how it ended."""
    stated = None if listen is None else Listen(*host_and_port(listen, "--listen", 0))
    use_one_heap()
    shown = RunConsole(choice, quiet=quiet, as_json=as_json)
    run = shown.prepared(start)
    try:
        with ExitStack() as closed:
            processors = [shown.processor(run, closed), text_lines(run.records.append_note)]
            if progress_pipe is not None:
                pipe = ProgressPipe(progress_pipe, run.plan.objective.worst_group_size)
                closed.callback(pipe.close)
                processors.append(pipe)
            before = _finished_before(run)
            tracking = _tracking(targets, run, in_turn(*processors)) if targets and not before else None
            if tracking is not None:
                processors.append(tracking)
            address = stated or _own_address(run)
            ending = before or _drive(run, address, ready_file, processors, place, tell_for)
        with uninterrupted():
            result = _written(run, ending)
        if tracking is not None:
            tracking.finish(ending.state.value, ending.words, result)
    finally:
        run.records.close()
    shown.result(result)
    if ending.state is not EndState.FINISHED:
        raise _unfinished(run, ending, trains=start.model is None)
    shown.finished(ending, result)


def _finished_before(run: Run) -> Ending | None:
    if run.training_run.next_sum() is not None or unnotified(run):
        return None
    words = f"all {run.plan.training.rounds} rounds" if trains(run.plan) else "the statistics"
    words = f"{words} were done before; nothing was repeated"
    return Ending(EndState.FINISHED, ExitReason.FINISHED, words)


def _written(run: Run, ending: Ending) -> ResultDocument | UnfinishedResult:
    try:
        return write_result(run, ending)
    except OSError as fault:
        raise FedfairError(
            f"the run was {ending.state.value}: {ending.words}; result.json cannot be written: {fault.strerror}",
            "make room on the disk and start it again; nothing that is recorded is repeated",
        ) from fault


def _unfinished(run: Run, ending: Ending, *, trains: bool) -> FedfairError:
    words = f"the {'run' if trains else 'evaluation'} was {ending.state.value}: {ending.words}"
    again = (
        f"continues after round {run.training_run.rounds_done}"
        if trains
        else "evaluates the model from the beginning"
    )
    remedy = ending.remedy or f"start it again: it {again}"
    return fault_of(ending, words, remedy)


def fault_of(ending: Ending, words: str, remedy: str) -> FedfairError:
    """Return the fault that a run ends with which is not finished: it decides whether a restart can help."""
    if ending.signal_name:
        return StoppedError(words, remedy, ending.signal_name)
    if ending.why is ExitReason.RESTORED:
        # Every further start would end in the same way: somebody has to put the newest copy back.
        return StateError(words, remedy)
    return AbortedError(words, remedy)


def _tracking(targets: Sequence[TrackTarget], run: Run, failed: Processor) -> RunTracking:
    return RunTracking(targets, run.records.run_id, run.plan, format_digest(run.plan_digest), failed)


def initial_status(run: Run, now: datetime) -> RunStatus:
    """Return the status of a run that is about to be driven."""
    return RunStatus(
        role="aggregator",
        name=AGGREGATOR,
        federation=run.plan.federation.name,
        rounds_total=0 if run.training_run.evaluation_only else run.plan.training.rounds,
        worst_group_size=run.plan.objective.worst_group_size,
        loss_unit=run.plan.task.loss.unit,
        sites=tuple(run.plan.federation.collaborators),
        started=now,
        run_id=run.records.run_id,
        rounds_done=int(run.training_run.rounds_done),
        certificate_ends=run.identity.certificate.not_valid_after_utc,
    )


def _drive(
    run: Run,
    address: Listen,
    ready_file: Path | None,
    processors: Sequence[Processor],
    place: StatusPlace | None,
    tell_for: float | None,
) -> Ending:
    def announce(port: int) -> None:
        if ready_file is not None:
            write_ready_file(ready_file, port)

    def finished(ending: Ending) -> None:
        _written(run, ending)

    async def driven() -> Ending:
        terms = EndTerms(tell_for, finished)
        if place is None:
            return await serve(run, address, in_turn(*processors), announce, farewell=terms)
        from fedfair.watching.pages import watched

        keeper = StatusKeeper(initial_status(run, utc_now()), utc_now)
        publish = in_turn(*processors, keeper)

        def tell(url: str) -> None:
            publish(StatusServed(url))

        async with watched(place, lambda: keeper.status, utc_now, tell):
            return await serve(run, address, publish, announce, farewell=terms)

    return run_serving(driven())


def _own_address(run: Run) -> Listen:
    own = run.plan.federation.aggregator
    return Listen.from_plan(own.host, own.port)
