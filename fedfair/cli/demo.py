"""`fedfair demo`: four hospitals train one model on this machine, in a minute or two.

Each hospital is a process with its own real file. The federation trains three times over mutual TLS and under
masks, as `demo_plans.py` says. The same plans are then simulated over other draws of held-out patients, and a
table shows who pays what for whom. The workspaces with their throw-away keys are temporary; only results, models,
logs, plans and the hospitals' files are kept.
"""

from __future__ import annotations

import itertools
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fedfair.aggregation.model_file import load
from fedfair.cli.demo_plans import FILES, FOLDS, METHODS, ROUNDS, SEEDS, SIZES, DemoMethod, plan_of, put_files
from fedfair.cli.demo_table import Draw, HeldOutFigure, held_out_figures, held_out_section, held_out_table, to_json
from fedfair.cli.interrupts import interrupts_caught
from fedfair.cli.secagg_demo import secagg_command
from fedfair.errors import FedfairError, StoppedError
from fedfair.plan.losses import NATS
from fedfair.process.bars import fits_bar
from fedfair.process.rounds_bar import rounds_bar
from fedfair.process.terminal import console, error_console, say
from fedfair.report.run_page import run_page
from fedfair.results.reading import read_result
from fedfair.store.atomic_file import write_whole

if TYPE_CHECKING:
    from fedfair.cli.demo_simulations import Apart

app = typer.Typer(
    help="Run a demonstration on this machine: four hospitals and one aggregator, each a real process."
)
app.command("secagg")(secagg_command)

MODELS = ("save/init.safetensors", "save/last.safetensors", "save/best.safetensors")
KEPT = ("plan", "data", "result.json", *MODELS, "logs", "egress", "received")
MARKER = ".fedfair-demo"
PAGE, FIGURES = "report.html", "held-out.json"

TITLE = f"Mean loss ({NATS}; a guess has 0.693) of 920 held-out patients"
ABOUT = (
    f"Means over {len(SEEDS)} draws; in each, every patient is held out once, in one of {FOLDS} parts.",
    "Under a figure is where its difference from FedAvg lies with 95 %, on the same patients.",
)


@app.callback(invoke_without_command=True)
def demo(
    context: typer.Context,
    output: Path = typer.Option(
        Path("fedfair-demo"), "--output", "-o", help="Folder for results, models and logs."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print the results as JSON instead of the table."),
    quiet: bool = typer.Option(False, "--quiet", "-q", help="Show no progress."),
) -> None:
    """Train one model over four hospitals on this machine, in three ways, and compare who is served how well."""
    if context.invoked_subcommand is not None:
        return
    _check_replaceable(output)
    show = not (quiet or as_json)
    try:
        with interrupts_caught() as ask, tempfile.TemporaryDirectory(prefix="fedfair-demo-") as temporary:
            folders = {
                method.name: _run(Path(temporary) / method.name, method, ask, show=show) for method in METHODS
            }
            judged, apart = _simulated(folders, ask, show=show)
            _keep(folders, output)
    except KeyboardInterrupt:
        raise StoppedError("interrupted; every process was stopped and nothing was kept") from None
    figures = held_out_figures(judged, SIZES)
    told = {"figures": to_json(figures), "deployed_apart": {name: asdict(each) for name, each in apart.items()}}
    write_whole(output / FIGURES, json.dumps(told, indent=2) + "\n")
    results = {
        f"{method.name}/result.json": read_result(output / method.name / "result.json") for method in METHODS
    }
    table = held_out_section(figures, TITLE, (*ABOUT, _agreement(apart)))
    # A page is about the first of its results that follows a worst group: that by excess is to be the one.
    reversed_results, labels = dict(reversed(results.items())), [method.label for method in reversed(METHODS)]
    write_whole(output / PAGE, run_page(reversed_results, labels=labels, first=[table]))
    if as_json:
        console.print_json("[" + ",".join(result.model_dump_json() for result in results.values()) + "]")
        return
    _print_outcome(figures, apart, output)


def _run(folder: Path, method: DemoMethod, ask: Callable[[], None], *, show: bool) -> Path:
    from fedfair.cli.loopback import Processes, prepare

    if show:
        error_console.print(
            f"[bold]{method.label}[/]: an aggregator and four hospitals start, each a process of its own"
        )
    put_files(folder)
    workspace = prepare(folder, plan_of(method), FILES)
    with (
        rounds_bar(ROUNDS, method.worst_group_size, error_console, quiet=not show, title=method.label) as bar,
        Processes(workspace) as processes,
    ):
        for line in processes.progress():
            ask()
            bar.take_line(line)
        processes.wait()
        ask()
    return workspace.folder


def _simulated(
    folders: Mapping[str, Path], ask: Callable[[], None], *, show: bool
) -> tuple[dict[str, Sequence[Draw]], dict[str, Apart]]:
    """Return how each method serves the patients of every draw, and how far its deployed run is from one."""
    from fedfair.cli.demo_simulations import simulations

    judged: dict[str, Sequence[Draw]] = {}
    apart, count = {}, len(METHODS) * len(SEEDS) * FOLDS
    if show:
        error_console.print(f"{count} simulations of the same plans, each with other patients held out")
    with fits_bar(quiet=not show) as fitted:
        done = itertools.count(1)

        def tick() -> None:
            ask()
            fitted(next(done), count)

        for method in METHODS:
            judged[method.label], apart[method.name] = simulations(folders[method.name], method, tick)
    return judged, apart


def _keep(folders: Mapping[str, Path], output: Path) -> None:
    """Copy what is worth keeping; keys, journals and everything else go with the temporary folder."""
    if output.exists():
        shutil.rmtree(output)
    for method, folder in folders.items():
        for name in KEPT:
            source, target = folder / name, output / method / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target)
            elif source.exists():
                shutil.copy2(source, target)
    (output / MARKER).touch()


def _check_replaceable(output: Path) -> None:
    if output.exists() and not (output / MARKER).exists():
        raise FedfairError(
            f"{output} exists and was not made by this demonstration",
            "move it away, or choose another folder with --output",
        )


def _print_outcome(figures: Sequence[HeldOutFigure], apart: Mapping[str, Apart], output: Path) -> None:
    console.print()
    console.print(held_out_table(figures, TITLE))
    folder = output / METHODS[-1].name
    console.print(
        *ABOUT,
        "",
        _agreement(apart),
        "Every sum was masked: the aggregator saw noise from each hospital, and the sum over all four.",
        _traffic(folder),
        f"Results, models, plans and logs: {', '.join(f'{output}/{method.name}' for method in METHODS)}",
        f"What left a hospital, message by message: fedfair audit show {folder}/egress/cleveland.jsonl",
        sep="\n",
    )
    say(f"All of this on one page: {(output / PAGE).resolve()}")


def _agreement(apart: Mapping[str, Apart]) -> str:
    """Return how far the deployed runs are from their simulations."""
    parameter, mean = max(each.parameter for each in apart.values()), max(each.mean for each in apart.values())
    return (
        f"The {len(apart)} deployed runs ended with the models of their simulations: no parameter differs by more "
        f"than {parameter:.6f}, and no mean loss of held-out patients by more than {mean:.6f}."
    )


def _traffic(folder: Path) -> str:
    """Return what one training round moved, as counted by the aggregator."""
    parameters = load(folder / "save" / "last.safetensors")[1].size
    metrics = (folder / "logs" / "aggregator_metrics.jsonl").read_text(encoding="utf-8")
    lines = (json.loads(line) for line in metrics.splitlines())
    last = [line for line in lines if line["purpose"] == "training"][-1]
    down, up = (last[key] // last["contributors"] for key in ("bytes_out", "bytes_in"))
    return (
        f"Each round: {down} bytes to a hospital, {up} bytes back: the model ({parameters} numbers) and the "
        "shared threshold (1 number) each way, the hospital's weight, and what hides and opens the sum."
    )
