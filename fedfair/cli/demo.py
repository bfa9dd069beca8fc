"""`fedfair demo`: the whole thing on this machine, in about a minute.

Three clinics of unequal size and different patients train twice over real processes and mutual TLS, with FedAvg
and with FedSRCVaR; a table then shows who is served how well. The workspace with its throw-away keys is temporary;
only results, models, logs and the plans are kept.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import typer

from fedfair.aggregation.model_file import load
from fedfair.cli.interrupts import interrupts_caught
from fedfair.cli.secagg_demo import secagg_command
from fedfair.errors import FedfairError, StoppedError
from fedfair.process.rounds_bar import rounds_bar
from fedfair.process.terminal import console, error_console, say
from fedfair.report.run_page import run_page
from fedfair.report.sentences import algorithm_name
from fedfair.report.tables import NAMES, comparison
from fedfair.results.document import ResultDocument
from fedfair.results.reading import read_result
from fedfair.store.atomic_file import write_whole

app = typer.Typer(
    help="Run a demonstration on this machine: three clinics and one aggregator, each a real process."
)
app.command("secagg")(secagg_command)

MODELS = ("save/init.safetensors", "save/last.safetensors", "save/best.safetensors")
KEPT = ("plan", "result.json", *MODELS, "logs", "egress", "received")
MARKER = ".fedfair-demo"
PAGE = "report.html"
SHOWN_SIZES = (0.1, 0.3)
ROUNDS = 80

PLAN: Mapping[str, Any] = {
    "federation": {
        "name": "demo",
        "aggregator": {"host": "localhost"},
        "collaborators": ["clinic-a", "clinic-b", "clinic-c"],
        "min_collaborators": 3,
        "join_deadline_seconds": 120,
        "round_deadline_seconds": 120,
    },
    "task": {
        "data": "breast-cancer",
        "partition": {"scheme": "dirichlet", "alpha": 2.0},
        "standardize": "secure",
        "model": {"name": "linear", "init": "zeros"},
    },
    "objective": {"name": "rcvar", "worst_group_size": 0.1, "tradeoff": 0.01},
    "training": {
        "rounds": ROUNDS,
        "batch_size": "full",
        "threshold_init": "quantile",
        "seed": 1,
    },
    "secure_aggregation": {"mode": "malicious", "most_records": 1024},
    "evaluation": {"every": 20, "scores": True},
}


@app.callback(invoke_without_command=True)
def demo(
    context: typer.Context,
    output: Path = typer.Option(
        Path("fedfair-demo"), "--output", "-o", help="Folder for results, models and logs."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print the results as JSON instead of the table."),
    quiet: bool = typer.Option(False, "--quiet", "-q", help="Show no progress."),
) -> None:
    """Train FedAvg and FedSRCVaR over three clinics on this machine, and compare their worst groups."""
    if context.invoked_subcommand is not None:
        return
    _check_replaceable(output)
    show = not (quiet or as_json)
    try:
        with interrupts_caught() as ask, tempfile.TemporaryDirectory(prefix="fedfair-demo-") as temporary:
            folders = {
                algorithm: _run(Path(temporary) / algorithm, algorithm, ask, show=show)
                for algorithm in ("fedavg", "fedsrcvar")
            }
            _keep(folders, output)
    except KeyboardInterrupt:
        raise StoppedError("interrupted; every process was stopped and nothing was kept") from None
    files = [output / algorithm / "result.json" for algorithm in folders]
    documents = {str(path.relative_to(output)): read_result(path) for path in files}
    labelled = {algorithm_name(one): one for one in documents.values()}
    write_whole(output / PAGE, run_page(documents, labels=[*labelled]))
    if as_json:
        console.print_json("[" + ",".join(result.model_dump_json() for result in labelled.values()) + "]")
        return
    _print_outcome(labelled, output)


def _run(folder: Path, algorithm: str, ask: Callable[[], None], *, show: bool) -> Path:
    from fedfair.cli.loopback import Processes, prepare

    training = {**PLAN["training"], "algorithm": algorithm}
    if show:
        error_console.print(
            f"[bold]{NAMES[algorithm]}[/]: an aggregator and three clinics start, each a process of its own"
        )
    workspace = prepare(folder, {**PLAN, "training": training})
    with (
        rounds_bar(ROUNDS, SHOWN_SIZES[0], error_console, quiet=not show, title=NAMES[algorithm]) as bar,
        Processes(workspace) as processes,
    ):
        for line in processes.progress():
            ask()
            bar.take_line(line)
        processes.wait()
        ask()
    return workspace.folder


def _keep(folders: Mapping[str, Path], output: Path) -> None:
    """Copy what is worth keeping; keys, journals and everything else go with the temporary folder."""
    if output.exists():
        shutil.rmtree(output)
    for algorithm, folder in folders.items():
        for name in KEPT:
            source, target = folder / name, output / algorithm / name
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


def _print_outcome(results: Mapping[str, ResultDocument], output: Path) -> None:
    console.print()
    console.print(comparison(results, SHOWN_SIZES))
    average, fair = (result.shown[1].worst_risk(0.1) for result in results.values())
    change = f"{(fair - average) / average:+.0%}"
    console.print(
        "",
        f"Mean loss of the worst-served tenth: {average:.3f} with FedAvg, {fair:.3f} with FedSRCVaR ({change}).",
        "Nobody said who they are, and no loss left a clinic.",
        _traffic(output / "fedsrcvar"),
        f"Results, models, plans and logs: {output}/fedavg and {output}/fedsrcvar",
        "Every sum was masked: the aggregator saw noise from each clinic, and the sum over all three.",
        f"What left a clinic, message by message: fedfair audit show {output}/fedsrcvar/egress/clinic-a.jsonl",
        sep="\n",
    )
    say(f"All of this on one page: {(output / PAGE).resolve()}")


def _traffic(folder: Path) -> str:
    """Return what one training round moved, as counted by the aggregator."""
    parameters = load(folder / "save" / "last.safetensors")[1].size
    metrics = (folder / "logs" / "aggregator_metrics.jsonl").read_text(encoding="utf-8")
    lines = (json.loads(line) for line in metrics.splitlines())
    last = [line for line in lines if line["purpose"] == "training"][-1]
    down, up = (last[key] // last["contributors"] for key in ("bytes_out", "bytes_in"))
    return (
        f"Each round: {down} bytes to a clinic, {up} bytes back: the model ({parameters} numbers) and the shared "
        "threshold (1 number) each way, the clinic's weight, and what hides and opens the sum."
    )
