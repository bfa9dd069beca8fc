"""Limits requests: counts what this site has answered under one plan, and how much more its policy allows.

Whether a request is due is no question here: it is the one that this site's own state of the run asks for. An
aggregator could still begin runs as often as it likes. So the site counts for itself: runs, rounds, attempts at
each, and every model that it evaluates. Each of them is a row by its own key (`answered_facts`), so that the
latest request costs what the first one did. The rows are on the disk before an answer is computed
(`request_record`), so that a crash grants nothing twice; they may count what was never sent.

A request about the same state in the same run is the same request: its answer is the same too, and counts once.
What becomes of two masked copies of it is secure aggregation's own business. Every masked training sum counts, for
its batches are drawn by this site's own count of attempts. Where the plan adds noise, each answer has noise of its
own, which averages out over many: there every answer counts, and those about one saved model count together.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from operator import attrgetter

from fedfair.plan.derived import is_masked, is_noised, needs_every_site
from fedfair.plan.schema import Plan
from fedfair.policy.aggregation_request import AggregationRequest
from fedfair.policy.answered_facts import AnsweredFacts, FactTable, Rows, key, number_row, text_row
from fedfair.policy.refusal import Refusal
from fedfair.policy.site_config import SitePolicy
from fedfair.statistics.statistic import Statistic
from fedfair.statistics.table import Purpose, purpose_named

FIRST_ATTEMPT = 1

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
        state: 64 hex digits: which state of the run.
        model: 64 hex digits: which model vector.
        openers: roster indices of those who can open the sum only together, such as "1 2 5"; may be empty.
    """

    run: str
    on_demand: bool
    purpose: str
    round: int
    step: int
    state: str
    model: str
    openers: str = ""


_fields_of = attrgetter(*(field.name for field in fields(AnsweredRequest)))
"""Returns them as a tuple, in order; copies nothing, as `dataclasses.astuple` would."""


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
        self._needs_every_site = needs_every_site(plan)

    def decide(self, request: AggregationRequest) -> Refusal | Admitted:
        """Return why a request must not be answered, or which attempt it is and what to write down first."""
        asked = _answered(request)
        known = self._facts.number(_answered_key(asked))
        if known and not self._counts_each(asked):
            return Admitted(FIRST_ATTEMPT if self._in_the_clear else known, ())
        refusal = self._against(asked)
        if refusal is not None:
            return refusal
        attempt = self._facts.number(self._place(asked)) + 1
        if self._in_the_clear:
            # In the clear an answer is a function of the state alone, as in a simulation.
            return Admitted(FIRST_ATTEMPT, self._rows(asked, attempt))
        if not self._draws_over_all_runs(asked):
            return Admitted(attempt, self._rows(asked, attempt))
        drawn = self._facts.number(_drawn_key(asked)) + 1
        return Admitted(drawn, (*self._rows(asked, attempt), number_row(_drawn_key(asked), drawn)))

    def _draws_over_all_runs(self, asked: AnsweredRequest) -> bool:
        """Return whether the batches of a round are drawn by its attempts in all runs, and not in its own alone.

        An aggregator names runs as it likes. Where it may leave a site out, the same batches in two runs would be
        two sums of one computation over different sites, and their difference is the update of who was left out.
        Where every sum needs every site, there is nothing to be subtracted, and every run is as simulated.
        """
        return self._masked and not self._needs_every_site and _kind(asked).draws_anew

    def _counts_each(self, asked: AnsweredRequest) -> bool:
        return self._noised or (self._masked and _kind(asked).draws_anew)

    def _rows(self, asked: AnsweredRequest, attempt: int) -> Rows:
        """Return everything that is remembered of one answer."""
        added, kind = self._facts.added, _kind(asked)
        rows: Rows = (number_row(self._place(asked), attempt), number_row(_answered_key(asked), attempt))
        if not self._facts.has(state_key(asked.state)):
            rows += ((state_key(asked.state), b""),)
        if kind.is_round:
            rows += added(_ROUNDS, _round_key(asked))
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
            specific = self._against_run(asked) or self._against_round(asked)
        else:
            specific = self._against_run(asked)
        if _kind(asked).is_evaluation:
            specific = specific or self._against_openers(asked) or self._against_evaluations(asked)
        return specific or self._against_attempt(asked)

    def _against_run(self, asked: AnsweredRequest) -> Refusal | None:
        most = self._policy.max_runs or self._unless_shown(MASKED_RUNS)
        return self._beyond("max_runs", most, (_RUNS, _run_key(asked)), "run", "runs of this plan")

    def _against_round(self, asked: AnsweredRequest) -> Refusal | None:
        most, counted = self._policy.max_rounds, (_ROUNDS, _round_key(asked))
        return self._beyond("max_rounds", most, counted, "round", "rounds of this plan, over all its runs")

    def _against_model(self, asked: AnsweredRequest) -> Refusal | None:
        stated, counted = self._policy.max_evaluations_on_demand, (_ON_DEMAND, _on_demand_key(asked))
        most = self._unless_shown(MASKED_EVALUATIONS_ON_DEMAND) if stated is None else stated
        what = "saved models evaluated under this plan"
        return self._beyond("max_evaluations_on_demand", most, counted, "model", what)

    def _against_evaluations(self, asked: AnsweredRequest) -> Refusal | None:
        most, counted = self._policy.max_evaluations, (_EVALUATIONS, _evaluation_key(asked))
        return self._beyond("max_evaluations", most, counted, "evaluation", "evaluations under this plan")

    def _beyond(
        self, term: str, most: int | None, counted: tuple[bytes, bytes], one: str, what: str
    ) -> Refusal | None:
        """Return why one more is too many.

        Args:
            term: the limit, by its key in the policy.
            most: the limit itself; None for none.
            counted: the keys of their number and of this one, which is no more once it is known.
            one: the word for one of them.
            what: they are, in words.
        """
        if most is None:
            return None
        size, member = counted
        made = self._facts.number(size)
        if made < most or self._facts.has(member):
            return None
        return self._spent(term, f"{one} {made + 1}", most, what)

    def _against_attempt(self, asked: AnsweredRequest) -> Refusal | None:
        # A policy below the plan's own number was refused already where sums are masked; for plain sums it is no
        # term, and the plan's number holds.
        most = max(self._policy.max_attempts, self._plan.federation.max_attempts)
        made = self._facts.number(self._place(asked))
        if made < most:
            return None
        what = f"attempts at the {asked.purpose} sum of round {asked.round} of a run"
        return self._spent("max_attempts", f"attempt {made + 1}", most, what)

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

        Elsewhere it is run, purpose, round, step and, of an evaluation, the model; of a saved model under noise,
        it has no run and no round.
        """
        model = asked.model if _kind(asked).is_evaluation else ""
        if asked.on_demand and self._noised:
            return _place_key("", asked.purpose, 0, asked.step, model)
        return _place_key(asked.run, asked.purpose, asked.round, asked.step, model)

    def _spent(self, term: str, asked: str, most: int, what: str) -> Refusal:
        reason = f"the policy of {self._name} allows {most} {what}; this would be {asked}"
        return Refusal(reason, term, asked, f"at most {most}")


def _kind(asked: AnsweredRequest) -> Statistic:
    return purpose_named(asked.purpose).statistic


def _answered(request: AggregationRequest) -> AnsweredRequest:
    step = request.part if request.query is None else request.query.number
    openers = " ".join(map(str, request.openers))
    about = (request.state.hex(), request.model_sha256.hex(), openers)
    return AnsweredRequest(request.run, request.on_demand, request.purpose.value, request.round, step, *about)


def answers_in_round(table: FactTable, run: str, round_number: int) -> int:
    """Return how often a site has answered the training sum of a round, by its own record.

    Args:
        table: the record.
        run: the run.
        round_number: from 1.
    """
    return AnsweredFacts(table).number(_place_key(run, Purpose.TRAINING.value, round_number, 0, ""))


def state_key(state: str) -> bytes:
    """Return the key of the fact that this site has answered a request about a state.

    Args:
        state: 64 hex digits, its digest.
    """
    return key("state", state)


def _answered_key(asked: AnsweredRequest) -> bytes:
    return key("answered", *_fields_of(asked), near=asked.round)


def _place_key(run: str, purpose: str, round_number: int, step: int, model: str) -> bytes:
    return key("attempts", run, purpose, round_number, step, model, near=round_number)


def _drawn_key(asked: AnsweredRequest) -> bytes:
    return key("drawn", asked.purpose, asked.round, near=asked.round)


def _run_key(asked: AnsweredRequest) -> bytes:
    return key("run", asked.run)


def _round_key(asked: AnsweredRequest) -> bytes:
    return key("round", asked.run, asked.round, near=asked.round)


def _on_demand_key(asked: AnsweredRequest) -> bytes:
    return key("on demand model", asked.model)


def _evaluation_key(asked: AnsweredRequest) -> bytes:
    return key("evaluation", asked.purpose, asked.model)
