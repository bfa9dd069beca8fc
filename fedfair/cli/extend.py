"""`fedfair plan extend`: more rounds for a run that is finished."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from fedfair.plan.digest import format_digest
from fedfair.plan.loading import load_plan, workspace_of
from fedfair.process.terminal import console, say


def extend(
    rounds: int = typer.Option(..., "--rounds", "-r", help="How many rounds to add."),
    plan_file: Path = typer.Option(Path("plan/plan.yaml"), "--plan", "-p", help="The plan."),
    folder: Path | None = typer.Option(
        None, "--folder", help="Where the aggregator ran: the folder of save/. By default the plan's workspace."
    ),
    lost_rounds: int | None = typer.Option(
        None,
        "--lost-rounds",
        metavar="N",
        help="Attempts at rounds that were given up, where a site has counted more than this run's journal.",
    ),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Continue a finished run with more rounds. Every site approves the longer plan.

    It continues from its last state: weights, threshold, moments, control variates, scaling and evaluations.

    A site that took part compares this state with its own copy of the run.
    """
    from aggregator.finished_run import finished_run, journal_in
    from fedfair.run.initial_model import read_initial_model
    from fedfair.workspace.extension import extension
    from fedfair.workspace.update import apply_update, finish_update

    workspace = workspace_of(plan_file)
    finish_update(workspace)
    plan = load_plan(plan_file)
    journal_in(folder or workspace)
    before = read_initial_model(plan_file, plan)
    ended = finished_run(folder or workspace, plan, before)
    made = extension(plan_file, before, ended if lost_rounds is None else ended.counting(lost_rounds), rounds)
    apply_update(made.update, workspace)
    longer = load_plan(plan_file)
    digest = format_digest(read_initial_model(plan_file, longer).plan_digest)
    last = longer.training.rounds
    if as_json:
        stated = longer.training.initial
        words = {
            "rounds_done": made.done,
            "rounds": last,
            "state": None if stated is None or stated.continues is None else stated.continues.state,
            "earlier_plan_digest": format_digest(before.plan_digest),
            "plan_digest": digest,
        }
        console.print_json(json.dumps({"format": "fedfair/plan-extend/1", **words}))
        return
    say(f"the run continues after round {made.done}, with rounds {made.done + 1} to {last}")
    if longer.training.schedule != "constant":
        say(f"the rates rise and fall again over these {last - made.done} rounds ({longer.training.schedule})")
    for name in sorted(made.update.replaced):
        say(f"wrote {name}")
    say(f"plan digest {digest}")
    say("next: `fedfair workspace export --update`; every site imports it, approves it and starts again")
