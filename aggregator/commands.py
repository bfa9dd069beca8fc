"""The aggregator's commands, for `python -m aggregator` and `fedfair aggregator`: parse, call, print."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from aggregator.address import Listen
from aggregator.malloc import use_one_heap
from aggregator.notice_words import notice_words
from aggregator.observer import RunLines, RunObserver, SeveralRunObservers, SilentRunObserver
from aggregator.outcome import Ending, EndState, write_result
from aggregator.preparation import Run, Start, prepare
from aggregator.progress_lines import ProgressLines
from aggregator.server import serve, untold, write_ready_file
from aggregator.terminal_dashboard import TerminalDashboard
from fedfair.errors import AbortedError, FedfairError, StoppedError
from fedfair.process.environment import EnvironmentCommand
from fedfair.process.stopping import as_service, uninterrupted
from fedfair.process.terminal import DEBUG_HELP, console, error_console, host_and_port
from fedfair.results.document import ResultDocument, UnfinishedResult, to_text
from fedfair.results.warnings import reassurance, result_warnings
from fedfair.rounds.exit_reasons import ExitReason

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
ProgressPipe = Annotated[
    int | None,
    # For the program that starts this one, such as the demonstration; nothing that an operator types.
    typer.Option("--progress-pipe", hidden=True, help="Write one JSON line for each sum to this open pipe."),
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
    quiet: Quiet = False,
    as_json: AsJson = False,
    progress_pipe: ProgressPipe = None,
) -> None:
    """Start the aggregator in the federation's folder and run to the end.

    After a stop or a crash, another start resumes after the last recorded round.
    """
    goes_on = after_restore is Restored.CONTINUE
    _carry(
        Start(plan, Path(), cert_folder, fresh=fresh, goes_on=goes_on),
        listen,
        ready_file,
        quiet=quiet,
        as_json=as_json,
        progress_pipe=progress_pipe,
    )


@app.command(cls=EnvironmentCommand)
@as_service("the aggregator")
def evaluate(
    plan: PlanFile = DEFAULT_PLAN,
    model: ModelFile = DEFAULT_MODEL,
    cert_folder: CertFolder = DEFAULT_CERT_FOLDER,
    listen: ListenOn = None,
    ready_file: ReadyFile = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Have the collaborators evaluate a saved model, with the sums of a run and without training.

    Collaborators start as for a run. The result goes to the folder `evaluation`.
    """
    # Nothing of an earlier evaluation is continued: it may have been of another model.
    start = Start(plan, Path("evaluation"), cert_folder, fresh=True, model=model)
    _carry(start, listen, ready_file, quiet=quiet, as_json=as_json)


def _carry(
    start: Start,
    listen: str | None,
    ready_file: Path | None,
    *,
    quiet: bool,
    as_json: bool,
    progress_pipe: int | None = None,
) -> None:
    """Prepare, drive to the end, write the result and say how it ended."""
    stated = None if listen is None else Listen(*host_and_port(listen, "--listen", 0))
    use_one_heap()
    run = prepare(start, lambda notice: warn(notice_words(notice)))
    try:
        observers = [_shown(run, quiet=quiet)]
        if progress_pipe is not None:
            observers.append(ProgressLines(progress_pipe, run.plan.objective.worst_group_size))
        ending = _finished_before(run) or _drive(run, stated or _own_address(run), ready_file, observers)
        with uninterrupted():
            result = _written(run, ending)
    finally:
        run.records.close()
    if as_json:
        console.print_json(to_text(result))
    if ending.state is not EndState.FINISHED:
        raise _unfinished(run, ending, trains=start.model is None)
    if isinstance(result, ResultDocument):
        for doubt in result_warnings(result):
            warn(doubt)
    if not as_json and not quiet:
        console.print(Text(f"{ending.state.value}: {ending.words}"))
        for sentence in reassurance(result) if isinstance(result, ResultDocument) else ():
            console.print(Text(sentence), soft_wrap=True)


def warn(text: str) -> None:
    """Show a warning or a piece of news, whatever the verbosity."""
    error_console.print(Text(text, style="yellow"), soft_wrap=True)


def _finished_before(run: Run) -> Ending | None:
    if run.training_run.next_sum() is not None or untold(run):
        return None
    words = f"all {run.plan.training.rounds} rounds were done before; nothing was repeated"
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
    if ending.signal_name:
        return StoppedError(words, remedy, ending.signal_name)
    return AbortedError(words, remedy)


def _drive(run: Run, address: Listen, ready_file: Path | None, observers: Sequence[RunObserver]) -> Ending:
    rounds, group_size = run.plan.training.rounds, run.plan.objective.worst_group_size
    observer = SeveralRunObservers(*observers, RunLines(run.records.append_note, rounds, group_size))

    def announce(port: int) -> None:
        if ready_file is not None:
            write_ready_file(ready_file, port)

    try:
        return asyncio.run(serve(run, address, observer, announce))
    finally:
        observer.close()


def _shown(run: Run, *, quiet: bool) -> RunObserver:
    if quiet:
        return SilentRunObserver()
    rounds, group_size = run.plan.training.rounds, run.plan.objective.worst_group_size
    if error_console.is_terminal:
        return TerminalDashboard(error_console, rounds, run.training_run.rounds_done, group_size)
    return RunLines(lambda line: error_console.print(Text(line), soft_wrap=True), rounds, group_size)


def _own_address(run: Run) -> Listen:
    own = run.plan.federation.aggregator
    return Listen.from_plan(own.host, own.port)
