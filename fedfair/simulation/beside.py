"""Plain training at equal effort, beside a simulated run: the same plan, but that the mean loss is minimised.

Decides which plan that is. Rounds, steps, rates, batches, seed, protection and records are those of the plan; what
only its own algorithm takes is left out, and so are references. Where the plan trains on pooled records, so does
plain training.
"""

from __future__ import annotations

from pathlib import Path

from fedfair.errors import DataError, PlanError
from fedfair.plan.algorithms import ALGORITHMS
from fedfair.plan.derived import earlier_plans, measures_excess
from fedfair.plan.schema import Plan
from fedfair.results.baselines import BaselineFigures, PlainTraining
from fedfair.results.document import ResultDocument
from fedfair.simulation.backend import Engine, RayCluster
from fedfair.simulation.simulate import HERE, OnProgress, simulate

PLAIN, POOLED_PLAIN = "fedavg", "erm"


def plain_plan(plan: Plan) -> Plan:
    """Return the plan of plain training at equal effort.

    Raises:
        PlanError: the plan is plain training itself, continues an earlier run, or states what plain training
            cannot have.
    """
    algorithm = plan.training.algorithm
    if algorithm in (PLAIN, POOLED_PLAIN):
        raise PlanError(
            f"training.algorithm: is {algorithm}, which is plain training itself, and nothing can stand beside it",
            "omit --beside, or simulate another algorithm",
        )
    if earlier_plans(plan):
        raise PlanError(
            "the plan continues an earlier run, whose effort no plain training has had",
            "simulate the plan of the earlier run with as many rounds as both have",
        )
    facts = ALGORITHMS[algorithm]
    changes: dict[str, object] = {"algorithm": POOLED_PLAIN if facts.centralised else PLAIN, "options": {}}
    if not facts.mean_of_changes:
        # By default plain averaging steps with Adam, for which rates of another algorithm are not meant.
        changes["server_optimizer"] = {"name": "sgd"}
    objective = {"measure": "loss", "reference": None} if measures_excess(plan) else {}
    return plan.with_(training=changes, objective=objective)


def plain_training(
    plain: Plan, root: Path, *, engine: Engine, cluster: RayCluster = HERE, on_progress: OnProgress | None = None
) -> PlainTraining:
    """Return the figures of the plan that `plain_plan` returns; arguments and faults as of `simulate`."""
    result = simulate(plain, root, engine=engine, cluster=cluster, on_progress=on_progress).result
    split, risk = result.shown
    return PlainTraining(
        algorithm=result.algorithm,
        plan_digest=result.plan_digest,
        rounds=result.rounds,
        split="test" if split == "test" else "train",
        risk=risk,
    )


def with_plain(result: ResultDocument, plain: PlainTraining) -> ResultDocument:
    """Return a result with plain training beside it.

    Raises:
        DataError: the two are of other records.
    """
    split, risk = result.shown
    if (split, risk.n) != (plain.split, plain.risk.n):
        raise DataError(
            f"plain training was judged on {plain.risk.n} {plain.split} records, the model on {risk.n} {split}",
            "simulate again: the records have changed on the way",
        )
    return result.model_copy(update={"baselines": BaselineFigures(plain=plain)})
