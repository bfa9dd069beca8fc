"""The command that makes the model before round 1, for a process that must never import torch.

    python -m fedfair.training.initial_model PLAN OUT.safetensors

The aggregator runs it as a short-lived child. The file's metadata carry the digests of plan and weights and the
schema, so that the aggregator needs nothing else. Prints nothing but what went wrong.
"""

from __future__ import annotations

import sys
from pathlib import Path

from fedfair.aggregation.model_file import save
from fedfair.errors import FedfairError
from fedfair.plan.digest import format_digest
from fedfair.plan.loading import load_plan, workspace_of
from fedfair.training.binding import initial_model, plan_binding

__all__ = ["initial_model", "main"]


def main(arguments: list[str]) -> int:
    """Write the initial model of the plan at `arguments[0]` to the file `arguments[1]`; return the exit status."""
    if len(arguments) != 2:
        print("usage: python -m fedfair.training.initial_model PLAN OUT.safetensors", file=sys.stderr)  # noqa: T201 - a command
        return 2
    plan_file, out = (Path(argument) for argument in arguments)
    try:
        made = plan_binding(load_plan(plan_file), workspace_of(plan_file))
        metadata = {
            "plan_digest": format_digest(made.digest),
            "initial_weights": format_digest(made.initial_weights),
            "schema": made.schema.to_json(),
        }
        save(out, made.layout, made.vector, metadata)
    except FedfairError as error:
        print(error.diagnostics(), file=sys.stderr)  # noqa: T201 - a command
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
