"""The rules of `fedfair.policy.request_limits` once more, over sets in memory that grow with every answer.

Obvious, and an oracle for the rows of a table.
"""

from collections import Counter

from fedfair.plan.privacy import PrivacySection
from fedfair.plan.schema import Plan
from fedfair.policy.aggregation_request import AggregationRequest
from fedfair.policy.refusal import Refusal
from fedfair.policy.request_limits import MASKED_EVALUATIONS_ON_DEMAND, MASKED_RUNS, AnsweredRequest, _answered
from fedfair.policy.site_config import SitePolicy
from fedfair.statistics.table import Purpose

EVALUATIONS = (Purpose.EVALUATION, Purpose.EXACT_EVALUATION, Purpose.SLICES, Purpose.RELEASE_AUDIT)

_Place = tuple[str, str, int, int, str]
"""Run, purpose, round, step and, of an evaluation, the model; of a saved model under noise, no run or round."""


ANEW = {Purpose.TRAINING, Purpose.REFERENCE}
"""What draws other batches in each attempt."""


class SlowRequestLimits:
    """Everything that one site under one plan has answered, in memory."""

    def __init__(self, plan: Plan, policy: SitePolicy, name: str) -> None:
        self._plan = plan
        self._policy = policy
        self._name = name
        self._noised = plan.privacy != PrivacySection()
        self._masked = plan.secure_aggregation.mode != "off"
        self._answered: dict[AnsweredRequest, int] = {}
        self._drawn: Counter[tuple[str, int]] = Counter()
        self._draws: dict[AnsweredRequest, int] = {}
        self._runs: set[str] = set()
        self._rounds: set[tuple[str, int]] = set()
        self._attempts: Counter[_Place] = Counter()
        self._on_demand: set[str] = set()
        self._evaluators: str | None = None
        self._evaluations: set[tuple[str, str]] = set()

    def objection(self, request: AggregationRequest) -> Refusal | None:
        """Return why a request must not be answered; without a reason, it is counted from now on."""
        asked = _answered(request)
        if asked in self._answered and not self._counts_each(asked):
            return None
        refusal = self._against(asked, request.purpose)
        if refusal is None:
            self._take(asked)
        return refusal

    def attempt(self, request: AggregationRequest) -> int:
        """Return which attempt a recorded request draws as, from 1, by this site's own count."""
        asked = _answered(request)
        if not self._masked and not self._noised:
            return 1
        return self._draws.get(asked, self._answered[asked])

    def _counts_each(self, asked: AnsweredRequest) -> bool:
        return self._noised or (self._masked and Purpose(asked.purpose) in ANEW)

    def _take(self, asked: AnsweredRequest) -> None:
        place = self._place(asked)
        self._attempts[place] += 1
        self._answered[asked] = self._attempts[place]
        some_suffice = self._plan.federation.min_collaborators not in (
            None,
            len(self._plan.federation.collaborators),
        )
        if self._masked and some_suffice and Purpose(asked.purpose) in ANEW:
            self._drawn[asked.purpose, asked.round] += 1
            self._draws[asked] = self._drawn[asked.purpose, asked.round]
        if Purpose(asked.purpose) in EVALUATIONS:
            self._evaluations.add((asked.purpose, asked.model))
            self._evaluators = self._evaluators or asked.openers
        if asked.on_demand:
            self._on_demand.add(asked.model)
        else:
            self._runs.add(asked.run)
        if Purpose(asked.purpose) is Purpose.TRAINING:
            self._rounds.add((asked.run, asked.round))

    def _against(self, asked: AnsweredRequest, purpose: Purpose) -> Refusal | None:
        if asked.on_demand:
            specific = self._against_model(asked)
        elif purpose is Purpose.TRAINING:
            specific = self._against_run(asked) or self._against_round(asked)
        else:
            specific = self._against_run(asked)
        if purpose in EVALUATIONS:
            specific = specific or self._against_openers(asked) or self._against_evaluations(asked)
        return specific or self._against_attempt(asked)

    def _against_run(self, asked: AnsweredRequest) -> Refusal | None:
        most = self._policy.max_runs or self._unless_shown(MASKED_RUNS)
        if most is None or asked.run in self._runs or len(self._runs) < most:
            return None
        return self._spent("max_runs", f"run {len(self._runs) + 1}", most, "runs of this plan")

    def _against_round(self, asked: AnsweredRequest) -> Refusal | None:
        most, done = self._policy.max_rounds, len(self._rounds)
        if most is None or (asked.run, asked.round) in self._rounds or done < most:
            return None
        return self._spent("max_rounds", f"round {done + 1}", most, "rounds of this plan, over all its runs")

    def _against_attempt(self, asked: AnsweredRequest) -> Refusal | None:
        # A policy below the plan's own number was refused already where sums are masked; for plain sums it is no
        # term, and the plan's number holds.
        most = max(self._policy.max_attempts, self._plan.federation.max_attempts)
        made = self._attempts[self._place(asked)]
        if made < most:
            return None
        what = f"attempts at the {asked.purpose} sum of round {asked.round} of a run"
        return self._spent("max_attempts", f"attempt {made + 1}", most, what)

    def _against_model(self, asked: AnsweredRequest) -> Refusal | None:
        stated = self._policy.max_evaluations_on_demand
        most = self._unless_shown(MASKED_EVALUATIONS_ON_DEMAND) if stated is None else stated
        if most is None or asked.model in self._on_demand or len(self._on_demand) < most:
            return None
        asked_for = f"model {len(self._on_demand) + 1}"
        return self._spent("max_evaluations_on_demand", asked_for, most, "saved models evaluated under this plan")

    def _against_evaluations(self, asked: AnsweredRequest) -> Refusal | None:
        most, made = self._policy.max_evaluations, len(self._evaluations)
        if most is None or (asked.purpose, asked.model) in self._evaluations or made < most:
            return None
        return self._spent("max_evaluations", f"evaluation {made + 1}", most, "evaluations under this plan")

    def _against_openers(self, asked: AnsweredRequest) -> Refusal | None:
        """Return why two evaluations could be subtracted: they would not be over the very same sites."""
        if self._policy.evaluation_cohort == "any" or self._plan.secure_aggregation.mode == "off":
            return None
        if asked.openers and self._evaluators in {None, "", asked.openers}:
            return None
        allowed = self._evaluators or "one set of sites, all together"
        found = asked.openers or "any large enough part of a set"
        reason = f"the policy of {self._name} evaluates with one set of sites only ({allowed}), not with {found}"
        return Refusal(reason, "evaluation_cohort", found, allowed)

    def _unless_shown(self, most: int) -> int | None:
        """Return a limit for masked or noised sums; others show the aggregator this site's answers anyway."""
        return None if self._plan.secure_aggregation.mode == "off" and not self._noised else most

    def _place(self, asked: AnsweredRequest) -> _Place:
        """Return what the attempts at are counted together: in training, whatever the models are."""
        model = asked.model if Purpose(asked.purpose) in EVALUATIONS else ""
        if asked.on_demand and self._noised:
            return "", asked.purpose, 0, asked.step, model
        return asked.run, asked.purpose, asked.round, asked.step, model

    def _spent(self, term: str, asked: str, most: int, what: str) -> Refusal:
        reason = f"the policy of {self._name} allows {most} {what}; this would be {asked}"
        return Refusal(reason, term, asked, f"at most {most}")
