"""Limits requests: counts what this site has answered under one plan, and how much more its policy allows.

An aggregator says which round of which run a request belongs to, and can say what it likes. So the site counts
for itself: runs, rounds, attempts at each, and every model that it evaluates. Each of them is a row by its own key
(`answered_facts`), so that the latest request costs what the first one did. The rows are on the disk before an
answer is computed (`request_record`), so that a crash grants nothing twice; they may count what was never sent.

A request about the same model, in the same round, run and attempt is the same request: its answer is the same
too, and counts once. What becomes of two masked copies of it is secure aggregation's own business. Every masked
training sum counts, for its batches are drawn by the number of the attempt, and by this site's own count: the one
that the aggregator states could be the same twice, and so could a round in two runs. Where the plan adds noise,
each answer has noise of its own, which averages out over many: there every answer counts, and those about one
saved model count together. The model is known by its vector, its threshold and the scaling of the features: each
of them changes what losses say.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import astuple, dataclass

from fedfair.aggregation.round_subject import scaling_digest
from fedfair.aggregation.sum_kinds import SumKind, sum_kind
from fedfair.plan.derived import is_masked, is_noised, needs_everybody
from fedfair.plan.purpose import Purpose
from fedfair.plan.schedule import schedule_of
from fedfair.plan.schema import Plan
from fedfair.policy.aggregation_request import AggregationRequest
from fedfair.policy.answered_facts import AnsweredFacts, FactTable, Rows, key, number_row, text_row
from fedfair.policy.refusal import Refusal
from fedfair.policy.site_config import SitePolicy

MASKED_RUNS = 3
"""Runs of one masked or noised plan where the policy does not say: as many as `max_attempts` allows attempts."""

MASKED_EVALUATIONS_ON_DEMAND = 10
"""Saved models that are evaluated under one masked or noised plan where the policy does not say."""


@dataclass(frozen=True, slots=True)
class AnsweredRequest:
    """One request that was answered.

    Attributes:
        run: the run's name, as the aggregator says.
        on_demand: whether a saved model was evaluated, and no run trained.
        purpose: the value of the sum's purpose.
        round: the round, as the aggregator says.
        step: of an exact evaluation; otherwise 0.
        attempt: the attempt, as the aggregator says.
        subject: 64 hex digits: which model.
        openers: roster indices of those who can open the sum only together, such as "1 2 5"; may be empty.
    """

    run: str
    on_demand: bool
    purpose: str
    round: int
    step: int
    attempt: int
    subject: str
    openers: str = ""

    @property
    def models(self) -> tuple[str, str, int]:
        """Return which models are counted together: those of one run, purpose and round."""
        return self.run, self.purpose, self.round


@dataclass(frozen=True, slots=True)
class Admitted:
    """A request that may be answered once its rows are on the disk.

    Attributes:
        attempt: which attempt at its sum it is, from 1, by this site's own count; it decides what is drawn.
        rows: to be written, all or none; empty where it was answered before and does not count again.
    """

    attempt: int
    rows: Rows


_RUNS = key("runs")
_ROUNDS = key("rounds")
_EVALUATIONS = key("evaluations")
_ON_DEMAND = key("on demand")
_EVALUATORS = key("evaluators")


class RequestLimits:
    """The rules of one site under one plan.

    Args:
        table: what was answered so far; read here, and written by the owner of the rows.
        plan: the plan.
        policy: the site's.
        name: the site's, for messages.
    """

    def __init__(self, table: FactTable, plan: Plan, policy: SitePolicy, name: str) -> None:
        self._facts = AnsweredFacts(table)
        self._plan = plan
        self._policy = policy
        self._name = name
        self._noised = is_noised(plan)
        self._masked = is_masked(plan)
        self._in_the_clear = not self._masked and not self._noised
        self._needs_everybody = needs_everybody(plan)
        self._schedule = schedule_of(plan)

    def judge(self, request: AggregationRequest) -> Refusal | Admitted:
        """Return why a request must not be answered, or which attempt it is and what to write down first."""
        asked = _answered(request)
        known = self._facts.number(_answered_key(asked))
        if known and not self._counts_each(asked):
            return Admitted(self._drawn_in_the_clear(asked)[0] if self._in_the_clear else known, ())
        refusal = self._against_scaling(request, asked) or self._against(asked)
        if refusal is not None:
            return refusal
        attempt = self._facts.number(self._place(asked)) + 1
        if self._in_the_clear:
            drawn, rows = self._drawn_in_the_clear(asked)
            return Admitted(drawn, (*self._rows(asked, attempt), *rows))
        if not self._draws_over_all_runs(asked):
            return Admitted(attempt, self._rows(asked, attempt))
        drawn = self._facts.number(_drawn_key(asked)) + 1
        return Admitted(drawn, (*self._rows(asked, attempt), number_row(_drawn_key(asked), drawn)))

    def _drawn_in_the_clear(self, asked: AnsweredRequest) -> tuple[int, Rows]:
        """Return which attempt decides what is drawn in the clear, one for each stated, and what to write down.

        A round that is repeated after a crash may be about a model of other last bits, because a plain sum depends
        on the order of arrival. It must not bring other batches than the simulated run has.
        """
        known = self._facts.number(_stated_key(asked))
        if known:
            return known, ()
        counted = self._facts.number(_stated_count_key(asked)) + 1
        return counted, (number_row(_stated_key(asked), counted), number_row(_stated_count_key(asked), counted))

    def _draws_over_all_runs(self, asked: AnsweredRequest) -> bool:
        """Return whether the batches of a round are drawn by its attempts in all runs, and not in its own alone.

        An aggregator names runs as it likes. Where it may leave a site out, the same batches in two runs would be
        two sums of one computation over different sites, and their difference is the update of who was left out.
        Where every sum needs everybody, there is nothing to be subtracted, and every run is as simulated.
        """
        return self._masked and not self._needs_everybody and _kind(asked).is_round

    def _counts_each(self, asked: AnsweredRequest) -> bool:
        return self._noised or (self._masked and _kind(asked).is_round)

    def _rows(self, asked: AnsweredRequest, attempt: int) -> Rows:
        """Return everything that is remembered of one answer."""
        added, kind = self._facts.added, _kind(asked)
        rows: Rows = (number_row(self._place(asked), attempt), number_row(_answered_key(asked), attempt))
        if kind.is_round:
            rows += added(_ROUNDS, _round_key(asked))
        else:
            rows += added(_models_key(asked), _model_key(asked))
        if kind.is_evaluation:
            rows += added(_EVALUATIONS, _evaluation_key(asked))
            if not self._evaluators:
                rows += (text_row(_EVALUATORS, asked.openers),)
        if asked.on_demand:
            return rows + added(_ON_DEMAND, _on_demand_key(asked))
        return rows + added(_RUNS, _run_key(asked))

    @property
    def _evaluators(self) -> str:
        """Return the set of sites of the first masked evaluation; empty before it."""
        return self._facts.text(_EVALUATORS) or ""

    def _against(self, asked: AnsweredRequest) -> Refusal | None:
        if asked.on_demand:
            specific = self._against_model(asked)
        elif _kind(asked).is_round:
            specific = self._against_run(asked) or self._against_round(asked) or self._against_schedule(asked)
        else:
            specific = self._against_run(asked) or self._against_schedule(asked) or self._against_models(asked)
        if _kind(asked).is_evaluation:
            specific = specific or self._against_openers(asked) or self._against_evaluations(asked)
        return specific or self._against_attempt(asked)

    def _against_scaling(self, request: AggregationRequest, asked: AnsweredRequest) -> Refusal | None:
        """Return why a run must not begin under its scaling: it is of sums that this site never added to.

        A run whose sums need everybody cannot have its scaling before each site has added to the sums behind it.
        Who joins later, or has lost its files, cannot know, so only what begins a run is refused: its first
        evaluation and its first round. After that the transcript holds all sites to one scaling.
        """
        begins = asked.round <= int(_kind(asked).is_round)
        if request.scaling is None or asked.on_demand or not begins or not self._needs_everybody:
            return None
        if self._facts.number(_place_key(asked.run, Purpose.STANDARDISATION.value, 0, 0, "")):
            return None
        return Refusal(
            "a feature scaling came before this site had answered the standardisation of this run",
            "task.standardize",
            "a scaling without a standardisation",
            "one that every site has added to; begin a new run with --fresh if this site's state was lost",
        )

    def _against_run(self, asked: AnsweredRequest) -> Refusal | None:
        most = self._policy.max_runs or self._unless_shown(MASKED_RUNS)
        if most is None or self._facts.has(_run_key(asked)):
            return None
        made = self._facts.number(_RUNS)
        return None if made < most else self._spent("max_runs", f"run {made + 1}", most, "runs of this plan")

    def _against_round(self, asked: AnsweredRequest) -> Refusal | None:
        most, done = self._policy.max_rounds, self._facts.number(_ROUNDS)
        if most is None or done < most or self._facts.has(_round_key(asked)):
            return None
        return self._spent("max_rounds", f"round {done + 1}", most, "rounds of this plan, over all its runs")

    def _against_attempt(self, asked: AnsweredRequest) -> Refusal | None:
        # A policy below the plan's own number was refused already where sums are masked; for plain sums it is no
        # term, and the plan's number holds.
        most = max(self._policy.max_attempts, self._plan.federation.max_attempts)
        made = self._facts.number(self._place(asked))
        if made < most:
            return None
        what = f"attempts at the {asked.purpose} sum of round {asked.round} of a run"
        return self._spent("max_attempts", f"attempt {made + 1}", most, what)

    def _against_schedule(self, asked: AnsweredRequest) -> Refusal | None:
        """Return why a sum must not be made: no run of the plan makes one of its purpose at that round."""
        purpose = Purpose(asked.purpose)
        if self._schedule.most_models(purpose, asked.round):
            return None
        place, when = "in" if _kind(asked).is_round else "after", self._schedule.in_words(purpose)
        reason = f"no {asked.purpose} is due {place} round {asked.round}; the plan has them {when}"
        return Refusal(reason, self._schedule.key(purpose), f"round {asked.round}", when)

    def _against_models(self, asked: AnsweredRequest) -> Refusal | None:
        """Return why a sum must not be made: it is about one model more than a run has at that round."""
        purpose = Purpose(asked.purpose)
        count = self._schedule.most_models(purpose, asked.round)
        known = self._facts.number(_models_key(asked))
        if known < count + self._trained_again(asked) or self._facts.has(_model_key(asked)):
            return None
        return Refusal(
            f"after round {asked.round} of this run {known} model(s) had an {asked.purpose} already, and "
            f"{count} is due; this is another model",
            self._schedule.key(purpose),
            f"model {known + 1} of round {asked.round}",
            f"{count}",
        )

    def _trained_again(self, asked: AnsweredRequest) -> int:
        """Return how often a round was repeated: an aggregator that crashed continues with another model."""
        return max(0, self._facts.number(_place_key(asked.run, Purpose.TRAINING.value, asked.round, 0, "")) - 1)

    def _against_model(self, asked: AnsweredRequest) -> Refusal | None:
        stated = self._policy.max_evaluations_on_demand
        most = self._unless_shown(MASKED_EVALUATIONS_ON_DEMAND) if stated is None else stated
        made = self._facts.number(_ON_DEMAND)
        if most is None or made < most or self._facts.has(_on_demand_key(asked)):
            return None
        asked_for = f"model {made + 1}"
        return self._spent("max_evaluations_on_demand", asked_for, most, "saved models evaluated under this plan")

    def _against_evaluations(self, asked: AnsweredRequest) -> Refusal | None:
        most, made = self._policy.max_evaluations, self._facts.number(_EVALUATIONS)
        if most is None or made < most or self._facts.has(_evaluation_key(asked)):
            return None
        return self._spent("max_evaluations", f"evaluation {made + 1}", most, "evaluations under this plan")

    def _against_openers(self, asked: AnsweredRequest) -> Refusal | None:
        """Return why two evaluations could be subtracted: they would not be over the very same sites."""
        if self._policy.evaluation_cohort == "any" or not self._masked:
            return None
        first = self._evaluators
        if asked.openers and first in ("", asked.openers):
            return None
        allowed = first or "one set of sites, all together"
        found = asked.openers or "any large enough part of a set"
        reason = f"the policy of {self._name} evaluates with one set of sites only ({allowed}), not with {found}"
        return Refusal(reason, "evaluation_cohort", found, allowed)

    def _unless_shown(self, most: int) -> int | None:
        """Return a limit for masked or noised sums; others show the aggregator this site's answers anyway."""
        return None if self._in_the_clear else most

    def _place(self, asked: AnsweredRequest) -> bytes:
        """Return the key of what the attempts at are counted together: in training, whatever the models are.

        Elsewhere it is run, purpose, round, step and, of an evaluation, the subject; of a saved model under noise,
        it has no run and no round.
        """
        subject = asked.subject if _kind(asked).is_evaluation else ""
        if asked.on_demand and self._noised:
            return _place_key("", asked.purpose, 0, asked.step, subject)
        return _place_key(asked.run, asked.purpose, asked.round, asked.step, subject)

    def _spent(self, term: str, asked: str, most: int, what: str) -> Refusal:
        reason = f"the policy of {self._name} allows {most} {what}; this would be {asked}"
        return Refusal(reason, term, asked, f"at most {most}")


def _kind(asked: AnsweredRequest) -> SumKind:
    return sum_kind(Purpose(asked.purpose))


def _answered(request: AggregationRequest) -> AnsweredRequest:
    threshold = struct.pack("<d", request.threshold)
    subject = hashlib.sha256(request.model_sha256 + threshold + scaling_digest(request.scaling)).hexdigest()
    step = 0 if request.query is None else request.query.number
    openers = " ".join(map(str, request.openers))
    purpose = request.purpose.value
    return AnsweredRequest(
        request.run, request.on_demand, purpose, request.round, step, request.attempt, subject, openers
    )


def _answered_key(asked: AnsweredRequest) -> bytes:
    return key("answered", *astuple(asked), near=asked.round)


def _place_key(run: str, purpose: str, round_number: int, step: int, subject: str) -> bytes:
    return key("attempts", run, purpose, round_number, step, subject, near=round_number)


def _stated_key(asked: AnsweredRequest) -> bytes:
    return key("stated", asked.run, asked.purpose, asked.round, asked.step, asked.attempt, near=asked.round)


def _stated_count_key(asked: AnsweredRequest) -> bytes:
    return key("stated attempts", asked.run, asked.purpose, asked.round, asked.step, near=asked.round)


def _drawn_key(asked: AnsweredRequest) -> bytes:
    return key("drawn", asked.purpose, asked.round, near=asked.round)


def _run_key(asked: AnsweredRequest) -> bytes:
    return key("run", asked.run)


def _round_key(asked: AnsweredRequest) -> bytes:
    return key("round", asked.run, asked.round, near=asked.round)


def _models_key(asked: AnsweredRequest) -> bytes:
    return key("models", *asked.models, near=asked.round)


def _model_key(asked: AnsweredRequest) -> bytes:
    return key("model", *asked.models, asked.subject, near=asked.round)


def _on_demand_key(asked: AnsweredRequest) -> bytes:
    return key("on demand model", asked.subject)


def _evaluation_key(asked: AnsweredRequest) -> bytes:
    return key("evaluation", asked.purpose, asked.subject)
