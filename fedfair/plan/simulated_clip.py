"""Whether a simulation clips the changes of its sites, because a deployment of the plan would."""

from __future__ import annotations

from fedfair.plan.algorithms import ALGORITHMS
from fedfair.plan.derived import is_masked, is_unevaluated
from fedfair.plan.known_groups import publishes_groups
from fedfair.plan.schema import Plan


def clips_in_simulation(plan: Plan) -> bool:
    """Return whether a simulation of the plan clips changes, because a deployment would.

    No deployment does where sums are plain, where whole collaborators are protected (their changes are clipped
    before they are noised), and where it cannot run the algorithm, or cannot know its groups.
    """
    deployed = ALGORITHMS[plan.training.algorithm].deployed and publishes_groups(plan)
    return is_masked(plan) and deployed and not is_unevaluated(plan)
