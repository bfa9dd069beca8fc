"""`fedfair plan freeze`: the model before round 1 beside the plan, from its seed or from a file."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from fedfair.errors import PlanError
from fedfair.plan.digest import beginning_digest, format_digest
from fedfair.plan.loading import load_plan
from fedfair.process.terminal import console, say
from fedfair.templates import sentences


def freeze(
    plan_file: Path = typer.Option(Path("plan/plan.yaml"), "--plan", "-p", help="The plan."),
    source: Path | None = typer.Option(
        None,
        "--from",
        metavar="FILE",
        help="Begin with the weights of this file: a model saved by fedfair, .safetensors, or a state dict (.pt).",
    ),
    allow_missing: list[str] = typer.Option(
        [], "--allow-missing", metavar="NAMES", help="Tensors that keep the plan's own values: names or patterns."
    ),
    allow_extra: list[str] = typer.Option(
        [], "--allow-extra", metavar="NAMES", help="Tensors of the file to leave out: names or patterns."
    ),
    new_threshold: bool = typer.Option(
        False, "--new-threshold", help="Begin the threshold as the plan says, not with that of the file."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Write the model before round 1 beside the plan, for an aggregator without torch."""
    from fedfair.run.initial_model import initial_model_file
    from fedfair.training.freezing import freeze_from, freeze_plan
    from fedfair.training.imported_weights import Allowance

    if source is None and (allow_missing or allow_extra or new_threshold):
        raise PlanError("these options are about the weights of a file, and none is given", "add --from FILE")
    imported = None
    if source is None:
        made = freeze_plan(plan_file)
    else:
        allowed = Allowance(_names(allow_missing), _names(allow_extra))
        made, imported = freeze_from(plan_file, source, allowed, new_threshold=new_threshold)
    place = initial_model_file(plan_file)
    text, weights = format_digest(made.digest), format_digest(made.initial_weights)
    begun = load_plan(plan_file).training.initial
    if as_json:
        words: dict[str, object] = {"initial_model": str(place), "weights_digest": weights, "plan_digest": text}
        if imported is not None:
            words["from"] = {
                "file": str(source),
                "plan_values": list(imported.kept),
                "left_out": list(imported.ignored),
                "cast": list(imported.cast),
                "threshold": imported.threshold,
                "keeps_scaling": imported.scaling is not None,
            }
        if begun is not None:
            words["beginning_digest"] = format_digest(beginning_digest(begun))
        console.print_json(json.dumps({"format": "fedfair/plan-freeze/1", **words}))
        return
    if imported is not None and source is not None and begun is not None:
        values = {"source": source, "imported": imported, "same_sites": begun.same_sites}
        for line in sentences("fedfair.cli", "freezing.txt.jinja", **values):
            say(line)
        say(f"for policy.initial_weights of a site without its own copy: {format_digest(beginning_digest(begun))}")
    say(f"wrote {place}, initial weights {weights}")
    say(f"plan digest {text}")


def _names(given: list[str]) -> tuple[str, ...]:
    return tuple(name.strip() for each in given for name in each.split(",") if name.strip())
