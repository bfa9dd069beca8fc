"""`fedfair plan rerun`: the run again from the last state before withdrawn records counted."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from fedfair.errors import ApprovalError, PlanError
from fedfair.plan.digest import format_digest
from fedfair.plan.loading import initial_path, load_plan, workspace_of
from fedfair.process.terminal import console, say

CODE_FOLDER = "src"


def rerun(
    notice: Annotated[list[Path], typer.Option("--notice", help="A site's notice; may be repeated.")],
    plan_file: Annotated[Path, typer.Option("--plan", "-p", help="The plan.")] = Path("plan/plan.yaml"),
    rounds: Annotated[
        int | None,
        typer.Option("--rounds", "-r", help="Rounds of the first plan, where a run was extended twice."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Begin again from the last state in which no withdrawn record counted: nothing is unlearnt, all computed."""
    from fedfair.identity.roster import parse_roster
    from fedfair.plan.derived import earlier_plans
    from fedfair.run.initial_model import read_initial_model
    from fedfair.withdrawal.notice import verified_notice, withdrawal_sentences
    from fedfair.withdrawal.rerun import rerun_place

    plan = load_plan(plan_file)
    present = format_digest(read_initial_model(plan_file, plan).plan_digest)
    chain = (*earlier_plans(plan), present)
    roster = {str(name): key for name, key in parse_roster(plan.federation.roster).items()}
    notices = [verified_notice(_read(path), plan.federation.name, roster, str(path)) for path in notice]
    found = rerun_place(chain, notices)
    if found.begins_affected:
        raise PlanError(
            "the model that this plan begins with is of a run that is affected too",
            "run that plan again first, then `fedfair plan freeze --from` its new model",
        )
    last = len(chain) - 1
    if found.place not in (None, 0, last):
        raise PlanError(
            f"the first affected run is that of plan {chain[found.place or 0]}, and what it begins with is gone",
            "import the archive of that plan (`fedfair workspace import`), then give this command again",
        )
    if found.place == 0 < last:
        _restore_first(plan_file, chain[0], rounds)
    begun = None if found.place is None else chain[found.place]
    if as_json:
        words = {"plan_digest": begun, "restored": found.place == 0 < last, "sites": found.sites}
        console.print_json(json.dumps({"format": "fedfair/plan-rerun/1", **words}))
        return
    for sentence in withdrawal_sentences(notices, "", chain):
        say(sentence)
    if begun is None:
        say("no run that led to this plan is affected; nothing has to be run again")
        return
    say(f"run again: plan {begun}" + (", put back as it was before it was extended" if begun != present else ""))
    say("next: `fedfair aggregator start --fresh`, and every site starts again")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ApprovalError(f"{path} cannot be read: {error.strerror}", "name the notice of a site") from error


def _restore_first(plan_file: Path, digest: str, rounds: int | None) -> None:
    """Put the first plan of a chain back, if it comes out as the very plan that it was."""
    from fedfair.run.initial_model import initial_model_file, state_file
    from fedfair.training.freezing import freeze_plan
    from fedfair.workspace.extension import with_rounds
    from fedfair.workspace.update import PlanUpdate, apply_update

    plan, workspace = load_plan(plan_file), workspace_of(plan_file)
    stated = plan.training.initial
    done = rounds if stated is None or stated.continues is None or rounds is not None else stated.continues.rounds
    gone = (initial_path(plan_file), initial_model_file(plan_file), state_file(plan_file))
    with tempfile.TemporaryDirectory(prefix="fedfair-rerun-") as folder:
        made = Path(folder) / plan_file.parent.name / plan_file.name
        shutil.copytree(plan_file.parent, made.parent)
        if (workspace / CODE_FOLDER).is_dir():
            shutil.copytree(workspace / CODE_FOLDER, Path(folder) / CODE_FOLDER)
        for path in gone:
            (made.parent / path.name).unlink(missing_ok=True)
        made.write_text(with_rounds(plan_file, plan.training.rounds, done or 1), encoding="utf-8")
        found = format_digest(freeze_plan(made).digest)
        if found != digest:
            raise PlanError(
                f"without what the plan continues from it has the digest {found}, and the first plan had {digest}",
                "state its rounds by --rounds; or import the archive of that plan (`fedfair workspace import`)",
            )
        names = {path: f"{plan_file.resolve().parent.name}/{path.name}" for path in (plan_file, *gone)}
        model = initial_model_file(made)
        replaced = {names[plan_file]: made.read_bytes(), names[gone[1]]: model.read_bytes()}
        removed = tuple(names[path] for path in (gone[0], gone[2]) if path.exists())
        apply_update(PlanUpdate(replaced, removed), workspace)
