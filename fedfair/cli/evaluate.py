"""`fedfair evaluate`: a saved model on the plan's data, or on one site's own, with the result of a run."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path

import typer

from fedfair.plan.deployment import check_trains, refuse_records_of_sites
from fedfair.plan.derived import evaluates_exactly
from fedfair.plan.loading import load_plan, workspace_of
from fedfair.process.terminal import console, error_console, say, tell
from fedfair.report.sentences import promised_privacy
from fedfair.report.tables import by_group_size
from fedfair.results.document import to_text
from fedfair.results.reading import check_result_place
from fedfair.results.warnings import reassurance, result_warnings
from fedfair.store.atomic_file import write_whole


def evaluate_command(
    plan_file: Path = typer.Option(Path("plan/plan.yaml"), "--plan", "-p", help="The plan."),
    model_file: Path = typer.Option(Path("save/last.safetensors"), "--model", help="The saved model."),
    config: Path | None = typer.Option(
        None, "--config", "-c", help="A site's own configuration: evaluate on its own records alone."
    ),
    approval: Path | None = typer.Option(
        None, "--approval", help="With -c: the site's approval, if it is not at the path in that file."
    ),
    exact: bool = typer.Option(False, "--exact", help="Run the four sums of an exact evaluation too."),
    output: Path = typer.Option(None, "--output", "-o", help="Write the result here (JSON)."),
    as_json: bool = typer.Option(False, "--json", help="Print the result as JSON instead of the table."),
    quiet: bool = typer.Option(False, "--quiet", "-q", help="Show neither progress nor table."),
) -> None:
    """Evaluate a saved model on this machine."""
    plan = check_trains(load_plan(plan_file))
    if not model_file.is_file():
        raise typer.BadParameter(f"there is no model {model_file}", param_hint="--model")
    if output is not None:
        check_result_place(output)
    # Torch takes seconds to load; a wrong path should not have to wait for it.
    from collaborator.site_records import site_records
    from fedfair.simulation.evaluate import evaluate, evaluate_sites

    exact |= evaluates_exactly(plan)
    with nullcontext() if quiet else error_console.status("evaluating"):
        if config is None:
            refuse_records_of_sites(plan, workspace_of(plan_file))
            outcome = evaluate(plan, workspace_of(plan_file), model_file, exact=exact)
        else:
            own = site_records(config, plan_file, model_file, approval, evaluates=True)
            outcome = evaluate_sites(own.plan, own.code, {own.participant: own.splits}, model_file, exact=exact)
    text = to_text(outcome.result)
    if output is not None:
        write_whole(output, text)
    if as_json:
        sys.stdout.write(text)
    elif not quiet:
        console.print(by_group_size(outcome.result))
        for sentence in (*promised_privacy(outcome.result), *reassurance(outcome.result)):
            say(sentence)
    for doubt in result_warnings(outcome.result):
        tell(doubt, "yellow")
