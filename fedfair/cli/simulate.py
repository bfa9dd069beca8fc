"""`fedfair simulate`: the plan on this machine, with the result of the deployed run."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from fedfair.aggregation.evaluation_file import to_text as evaluation_text
from fedfair.cli.simulation_watch import SimulationWatch
from fedfair.errors import DataError, PlanError
from fedfair.news.event import LogLevel
from fedfair.news.log import JsonLog, LogChoice, LogFormat, LogFormatOption, LogLevelOption, json_log
from fedfair.plan.derived import trains
from fedfair.plan.loading import load_plan
from fedfair.process.rounds_bar import rounds_bar
from fedfair.process.terminal import console, error_console, say, tell
from fedfair.report.sentences import promised_privacy
from fedfair.report.tables import by_group_size
from fedfair.results.document import to_text
from fedfair.results.reading import check_result_place
from fedfair.results.warnings import reassurance, result_warnings
from fedfair.simulation.backend import Engine, RayCluster, chosen_engine
from fedfair.store.atomic_file import write_whole
from fedfair.tracking.targets import Track, track_targets

if TYPE_CHECKING:
    from fedfair.plan.schema import Plan
    from fedfair.simulation.simulate import SimulationOutcome


def simulate_command(
    plan_file: Path = typer.Option(Path("plan/plan.yaml"), "--plan", "-p", help="The plan."),
    output: Path = typer.Option(None, "--output", "-o", help="Write the result here (JSON)."),
    as_json: bool = typer.Option(False, "--json", help="Print the result as JSON instead of the table."),
    model_file: Path = typer.Option(None, "--model", help="Write the output model here (safetensors)."),
    save_folder: Path = typer.Option(
        None,
        "--save",
        help="Folder for last.safetensors, evaluation.json (a certificate needs both) and trained.safetensors.",
    ),
    engine: Engine = typer.Option(
        "auto",
        "--engine",
        help="Simulate collaborators one by one (loop), together (vectorised; linear and mlp models), or on the "
        "workers of a Ray cluster (ray).",
    ),
    workers: int = typer.Option(
        None, "--workers", "-w", min=1, help="With --engine ray: number of workers.", show_default="the processors"
    ),
    address: str = typer.Option(
        None,
        "--address",
        help="With --engine ray: a running cluster: auto, HOST:PORT or ray://HOST:PORT. Omitted, Ray starts here.",
    ),
    beside: Literal["plain"] = typer.Option(
        None, "--beside", help="Train this too, as long and by the same plan, and report on both: plain averaging."
    ),
    quiet: bool = typer.Option(False, "--quiet", "-q", help="Show neither progress nor table."),
    log_format: LogFormatOption = LogFormat.TEXT,
    log_level: LogLevelOption = LogLevel.INFO,
    track: Track = None,
) -> None:
    """Simulate the plan on one machine or a cluster, with the draws, sums and model of a deployment."""
    choice = LogChoice(log_format, log_level)
    log, targets, plan = json_log(choice), track_targets(track), load_plan(plan_file)
    _check_places(output, model_file, save_folder)
    if not trains(plan):
        given = {"--engine": engine != "auto", "--beside": beside, "--model": model_file, "--save": save_folder}
        _count(plan, plan_file, output, given, as_json=as_json, quiet=quiet or choice.is_json)
        return
    chosen_engine(plan, engine)
    cluster = _cluster(engine, workers, address)
    # Torch takes seconds to load; a plan with a mistake should not have to wait for it.
    from fedfair.plan.loading import workspace_of
    from fedfair.simulation.beside import plain_plan
    from fedfair.simulation.simulate import simulate

    plain = None if beside is None else plain_plan(plan)
    seen, root = SimulationWatch(plan, log, targets, shown=not quiet), workspace_of(plan_file)
    hidden = quiet or choice.is_json
    with rounds_bar(seen.rounds, seen.worst_group_size, error_console, quiet=hidden) as bar:
        watched = seen.together(bar.progressed)
        outcome = simulate(plan, root, engine=engine, cluster=cluster, on_progress=watched, on_loss=seen.lost)
    if plain is not None:
        outcome = _beside(outcome, plain, root, engine, cluster, hidden=hidden)
    _tell_ended(outcome, seen)
    _write(outcome, output, model_file, save_folder)
    if as_json:
        sys.stdout.write(to_text(outcome.result))
    _show(outcome, log, choice, shown=not (as_json or quiet))


def _tell_ended(outcome: SimulationOutcome, seen: SimulationWatch) -> None:
    """Say what trackers missed, and what the plan's survey shows of each collaborator."""
    faults = (f"{name}: {fault.sentence}" for name, found in outcome.survey_faults.items() for fault in found)
    for words in (*seen.ended(outcome.result), *faults):
        tell(words, "yellow")


def _count(
    plan: Plan, plan_file: Path, output: Path | None, given: Mapping[str, object], *, as_json: bool, quiet: bool
) -> None:
    """Simulate a plan of statistics, and show its table; refuse options that mean nothing without a model."""
    for name in (name for name, value in given.items() if value):
        raise PlanError(f"{name} is for a model, and this plan asks for statistics", f"omit {name}")
    from fedfair.plan.loading import workspace_of
    from fedfair.report.statistics_section import statistics_table
    from fedfair.simulation.statistics import simulate_statistics

    result = simulate_statistics(plan, workspace_of(plan_file))
    if output is not None:
        write_whole(output, to_text(result))
    if as_json:
        sys.stdout.write(to_text(result))
    elif not quiet and result.statistics is not None:
        console.print(statistics_table(result.statistics))


def _beside(
    outcome: SimulationOutcome, plain: Plan, root: Path, engine: Engine, cluster: RayCluster, *, hidden: bool
) -> SimulationOutcome:
    """Return the outcome with plain training beside it."""
    from fedfair.simulation.beside import plain_training, with_plain

    size = plain.objective.worst_group_size
    with rounds_bar(plain.training.rounds, size, error_console, quiet=hidden, title="plain training") as bar:
        figures = plain_training(plain, root, engine=engine, cluster=cluster, on_progress=bar.progressed)
    return replace(outcome, result=with_plain(outcome.result, figures))


def _show(outcome: SimulationOutcome, log: JsonLog | None, choice: LogChoice, *, shown: bool) -> None:
    """Print the table of the result and what it promises, where that is shown; say what is probably not meant."""
    if log is None and shown:
        console.print(by_group_size(outcome.result))
        for sentence in (*promised_privacy(outcome.result), *reassurance(outcome.result)):
            say(sentence)
    for doubt in result_warnings(outcome.result):
        if log is not None:
            log.doubt("result_doubted", doubt)
        elif choice.level.includes(LogLevel.WARNING):
            tell(doubt, "yellow")


def _cluster(engine: Engine, workers: int | None, address: str | None) -> RayCluster:
    """Return the workers that are asked for; refuse a number of workers that no engine uses."""
    given = "--workers" if workers is not None else "--address" if address is not None else None
    if given is not None and engine != "ray":
        raise PlanError(f"{given} is for --engine ray, and the engine is {engine}", "add --engine ray, or omit it")
    return RayCluster(address, workers)


def _write(
    outcome: SimulationOutcome, output: Path | None, model_file: Path | None, save_folder: Path | None
) -> None:
    from fedfair.run.reference_file import FILE as REFERENCES
    from fedfair.run.reference_file import write_references
    from fedfair.run.saved_model import save_model

    if output is not None:
        write_whole(output, to_text(outcome.result))
    if model_file is not None:
        save_model(model_file, outcome.layout, outcome.saved, outcome.origin)
    if save_folder is not None:
        # As a deployed run leaves its folder `save`.
        save_folder.mkdir(exist_ok=True)
        save_model(save_folder / "last.safetensors", outcome.layout, outcome.saved, outcome.origin)
        if outcome.trained is not None:
            save_model(save_folder / "trained.safetensors", outcome.layout, outcome.trained, outcome.origin)
        if outcome.references is not None:
            write_references(save_folder / REFERENCES, outcome.references())
        write_whole(save_folder / "evaluation.json", evaluation_text(outcome.evaluation))


def _check_places(output: Path | None, model_file: Path | None, save_folder: Path | None) -> None:
    """Refuse before the work, not after it, when a file could not be written, or would replace another one."""
    if output is not None:
        check_result_place(output)
    for place in (model_file, save_folder):
        if place is not None and not place.parent.is_dir():
            raise DataError(f"{place}: the folder {place.parent} does not exist", "create it")
    if model_file is not None:
        _check_model_place(model_file)
    if model_file is not None and output is not None and model_file.resolve() == output.resolve():
        raise DataError(f"--output and --model both name {model_file}", "name two files")
    if save_folder is not None and save_folder.exists() and not save_folder.is_dir():
        raise DataError(f"{save_folder} is a file, --save needs a folder", "name a new or an existing folder")


def _check_model_place(path: Path) -> None:
    if path.is_dir():
        raise DataError(f"{path} is a folder", "name a file in it")
    if path.is_file() and path.stat().st_size > 0:
        from fedfair.aggregation.model_file import load

        try:
            load(path)
        except DataError as fault:
            raise DataError(f"{path} exists and is no model", "move it away, or name another file") from fault
