"""What leaves a site in readable form under a plan, in kinds that a site's policy can allow or refuse.

A masked sum shows nothing but the sum. So what counts is what is known once the sums are open: sums over
everybody, or something about one site, one group, one record. `algorithms.py` says it of every algorithm, this
module of a whole plan. What plain sums show on top is the term `allow_plain_sums`, what `site_means` publishes the
term `publish_site_means`.
"""

from __future__ import annotations

from collections.abc import Mapping

from fedfair.plan.algorithms import ALGORITHMS
from fedfair.plan.fields import Revelation
from fedfair.plan.schema import Plan

MEANING: Mapping[Revelation, str] = {
    "update-sums": "sums over everybody of weighted changes of the model and the threshold, and of weights",
    "loss-sums": "sums over everybody of losses, of loss histograms and of what a confusion matrix counts",
    "loss-quantiles": "the loss at each group size's quantile, exactly: that of one record, of whichever site",
    "feature-sums": "sums over everybody of the values of each column, and of their squares",
    "group-losses": "the loss of every named group over everybody",
    "site-losses": "the loss of one site by itself",
    "site-updates": "the change of the model of one site by itself",
    "records": "records",
}

SUMS_ONLY: tuple[Revelation, ...] = ("update-sums", "loss-sums", "loss-quantiles", "feature-sums")
"""What deployments reveal; nothing of it is about one site."""


def of_evaluation(plan: Plan) -> dict[Revelation, str]:
    """Return the kinds that an evaluation under a plan reveals, each with what in the plan asks for it."""
    revealed: dict[Revelation, str] = {"loss-sums": "evaluation"}
    if plan.evaluation.method == "exact":
        revealed["loss-quantiles"] = "evaluation.method: exact"
    return revealed


def of_run(plan: Plan) -> dict[Revelation, str]:
    """Return the kinds that a whole run of a plan reveals, each with what in the plan asks for it."""
    name = plan.training.algorithm
    revealed: dict[Revelation, str] = dict.fromkeys(ALGORITHMS[name].kinds, f"training.algorithm: {name}")
    if plan.privacy.collaborator_level is not None:
        return revealed  # no other sum is ever made
    revealed |= of_evaluation(plan)
    if plan.task.standardize == "secure":
        revealed["feature-sums"] = "task.standardize: secure"
    return revealed
