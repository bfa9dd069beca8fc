"""Whether one sum is within the plan that this site approved and within its policy, whatever came before it.

The plan and the announced run were held against the policy before; this holds the aggregator to the same terms at
every question, because it may ask for what it never announced. What counts how often is `allowance.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from collaborator.reluctance import Reluctance
from fedfair.learning.data.dataset import FeatureSchema
from fedfair.learning.exchange import is_unevaluated
from fedfair.learning.standardisation import standardises
from fedfair.plan.algorithms import ALGORITHMS
from fedfair.plan.fields import Revelation
from fedfair.plan.purpose import Purpose
from fedfair.plan.schema import Plan
from fedfair.plan.site import SitePolicy
from fedfair.wire.frames import SumStart

_WORDS = {purpose: purpose.value for purpose in Purpose} | {Purpose.EXACT_EVALUATION: Purpose.EVALUATION.value}
"""The word of a site's policy that allows sums of a purpose: an evaluation is one, however fine."""

_REVEALED: Mapping[Purpose, tuple[Revelation, ...]] = {
    Purpose.EVALUATION: ("loss-sums",),
    Purpose.EXACT_EVALUATION: ("loss-quantiles",),
    Purpose.STANDARDISATION: ("feature-sums",),
}
"""What the sums of a purpose make known; those of training what the algorithm says."""


def planned_purposes(plan: Plan, schema: FeatureSchema) -> tuple[Purpose, ...]:
    """Return the purposes for which a plan has sums, in a run or on demand."""
    evaluated = not is_unevaluated(plan)
    wanted = (
        (Purpose.TRAINING, True),
        (Purpose.EVALUATION, evaluated),
        (Purpose.STANDARDISATION, evaluated and standardises(plan, schema)),
        (Purpose.EXACT_EVALUATION, evaluated and plan.evaluation.method == "exact"),
    )
    return tuple(purpose for purpose, is_wanted in wanted if is_wanted)


class Permission:
    """What a site allows of every question.

    Args:
        plan: the plan that the site approved.
        schema: of its features.
        policy: the site's.
        name: the site's, for messages.
    """

    def __init__(self, plan: Plan, schema: FeatureSchema, policy: SitePolicy, name: str) -> None:
        self._planned = planned_purposes(plan, schema)
        self._revealed = {Purpose.TRAINING: ALGORITHMS[plan.training.algorithm].kinds, **_REVEALED}
        self._policy = policy
        self._name = name

    def objection(self, start: SumStart) -> Reluctance | None:
        """Return what the plan or the policy has against one sum; None where that is nothing."""
        purpose, policy = start.purpose, self._policy
        if purpose not in self._planned:
            planned = ", ".join(planned.value for planned in self._planned)
            words = f"the plan that {self._name} approved has no sums for {purpose.value}"
            return Reluctance(words, "purposes", purpose.value, planned)
        words = f"the policy of {self._name} does not allow sums for {purpose.value}"
        if _WORDS[purpose] not in policy.purposes:
            return Reluctance(words, "purposes", _WORDS[purpose], ", ".join(policy.purposes))
        kinds = self._revealed[purpose]
        if not set(kinds) <= set(policy.reveals):
            known = ", ".join(kinds)
            return Reluctance(f"{words}, which reveal {known}", "reveals", known, ", ".join(policy.reveals))
        if policy.max_rounds is not None and start.round > policy.max_rounds:
            words = f"the policy of {self._name} allows {policy.max_rounds} rounds, this is round {start.round}"
            return Reluctance(words, "max_rounds", f"round {start.round}", f"at most {policy.max_rounds}")
        return None
