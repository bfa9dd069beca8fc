"""Whether a workspace's plan and code trained a saved model, found from files alone: none of that code runs.

A plan's digest covers the model before round 1, which own code ("module:function") has to make. A model's file
states the digest of those weights and has their layout, so the plan's digest follows from it, from the plan and
from the bytes of the code. No other plan or code gives the same digest, whatever the file states.
"""

from __future__ import annotations

from pathlib import Path

from fedfair.plan.digest import plan_digest
from fedfair.plan.module_code import code_digests
from fedfair.plan.schema import Plan
from fedfair.run.saved_model import DescribedModel


def digest_with(described: DescribedModel, plan: Plan, code: Path) -> bytes | None:
    """Return the digest, 32 bytes, of plan and code with the initial weights that a model's file states.

    Args:
        described: the model's file.
        plan: the plan.
        code: the folder in which the plan's code is looked for.

    Returns:
        None where the file states no initial weights; fedfair 0.1 wrote such files at first.

    Raises:
        PlanError: a module has no source in the folder, or a file cannot be read.
    """
    weights = described.origin.initial_weights
    if weights is None:
        return None
    return plan_digest(
        plan,
        layout_digest=described.layout.digest,
        initial_weights_digest=weights,
        code_digests=code_digests(plan.task.references, code),
    )
