"""The facts of a plan that a tracker shows beside a run; `result.json` has them too."""

from __future__ import annotations

from fedfair.plan.description import summary
from fedfair.plan.schema import Plan


def tracked_facts(plan: Plan, plan_digest: str = "") -> dict[str, str]:
    """Return the facts by name.

    Args:
        plan: the plan that is run.
        plan_digest: its digest, "sha256:" and 64 hex digits; empty where it is known at the end only.
    """
    named = {"plan_digest": plan_digest} if plan_digest else {}
    named |= {
        "algorithm": plan.training.algorithm,
        "worst_group_size": f"{plan.objective.worst_group_size:g}",
        "tradeoff": f"{plan.objective.tradeoff:g}",
    }
    return named | {f"plan/{heading}": sentence for heading, sentence in summary(plan)}
