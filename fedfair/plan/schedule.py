"""The sums that a run makes, and when: derived from the plan once, for everybody who has to know.

The run walks it, a site refuses what is not on it, terms and disclosures name its purposes, and the privacy
forecast prices its sums. In order:

    [SURVEY] -> [STANDARDISATION] -> [EVALUATION (round 0)] -> TRAINING 1..T, with an EVALUATION after every
    `every` rounds and after the last
    -> [EVALUATION of the output model, where it is a mean and so another one than the last]
    -> [EXACT_EVALUATION of the output model, four sums, where the plan asks for it]

Weights that are given are not evaluated before round 1, unless these very sites have evaluated them already: see
`derived.evaluates_beginning`. Nothing but training is summed where whole collaborators are protected: no other
sum carries the noise for that. A model that happens to be the one of the evaluation before is not asked about
again, and what is lost is asked for again; neither can be known beforehand.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fedfair.plan.derived import (
    evaluates_beginning,
    evaluates_exactly,
    first_averaged_round,
    is_unevaluated,
    returns_mean,
    sums_columns,
    surveys,
)
from fedfair.plan.schema import Plan
from fedfair.statistics.table import Purpose

EXACT_STEPS = 4
"""Sums of one exact evaluation, all about one model."""

_IN_A_ROUND = (
    Purpose.SURVEY,
    Purpose.STANDARDISATION,
    Purpose.TRAINING,
    Purpose.EVALUATION,
    Purpose.EXACT_EVALUATION,
)


@dataclass(frozen=True, slots=True)
class DueSum:
    """One sum of a run.

    Attributes:
        purpose: why it is made.
        round: the training round, from 1; with any other purpose, the number of rounds done so far.
        step: of an exact evaluation, from 1; otherwise 0.
    """

    purpose: Purpose
    round: int
    step: int = 0


@dataclass(frozen=True, slots=True)
class Schedule:
    """The sums that a run makes, and when.

    Attributes:
        rounds: how many training rounds there are.
        every: rounds between two evaluations, at least 1.
        standardises: whether the run begins with the sums of the numeric columns.
        evaluates: whether there are evaluations at all.
        averages: whether the output model is a mean.
        averaged_from: rounds done before the first model of that mean was broadcast.
        exact: whether the output model is evaluated exactly.
        surveys: whether the run begins with a description of every column.
        evaluates_first: whether the model before round 1 is evaluated.
    """

    rounds: int
    every: int
    standardises: bool
    evaluates: bool
    averages: bool
    averaged_from: int
    exact: bool
    surveys: bool = False
    evaluates_first: bool = True

    @property
    def purposes(self) -> tuple[Purpose, ...]:
        """Return why the run sums anything, in the order of `Purpose`."""
        made = {
            Purpose.TRAINING: True,
            Purpose.EVALUATION: self.evaluates,
            Purpose.STANDARDISATION: self.standardises,
            Purpose.EXACT_EVALUATION: self.exact,
            Purpose.SURVEY: self.surveys,
        }
        return tuple(purpose for purpose in Purpose if made[purpose])

    def evaluates_after(self, rounds_done: int) -> bool:
        """Return whether the model that so many rounds lead to is evaluated."""
        due = rounds_done % self.every == 0 or rounds_done == self.rounds
        return self.evaluates and due and (rounds_done > 0 or self.evaluates_first)

    @property
    def evaluates_output(self) -> bool:
        """Return whether the output model is evaluated by itself: as a mean that is no model evaluated before."""
        is_one_model = self.averaged_from + 1 >= self.rounds
        known = is_one_model and self.evaluates_after(self.averaged_from)
        return self.averages and self.evaluates and not known

    def models(self, purpose: Purpose, rounds_done: int) -> int:
        """Return about how many models a run makes sums when so many of its rounds are done.

        Args:
            purpose: of the sums; the four sums of an exact evaluation are about one model, and the sum of columns
                counts as one.
            rounds_done: from 0; with `TRAINING`, the round itself, from 1.
        """
        match purpose:
            case Purpose.TRAINING:
                return int(1 <= rounds_done <= self.rounds)
            case Purpose.SURVEY:
                return int(self.surveys and rounds_done == 0)
            case Purpose.STANDARDISATION:
                return int(self.standardises and rounds_done == 0)
            case Purpose.EVALUATION:
                own = self.evaluates_output and rounds_done == self.rounds
                return int(self.evaluates_after(rounds_done)) + int(own)
            case Purpose.EXACT_EVALUATION:
                return int(self.exact and rounds_done == self.rounds)

    def total(self, purpose: Purpose, rounds_done: int | None = None) -> int:
        """Return about how many models there are sums up to and with so many rounds; None for the whole run."""
        done = self.rounds if rounds_done is None else rounds_done
        return sum(self.models(purpose, past) for past in range(done + 1))

    def sums(self) -> Iterator[DueSum]:
        """Yield in order every sum of a run in which none is lost, omitted or repeated."""
        for done in range(self.rounds + 1):
            for purpose in _IN_A_ROUND:
                steps = range(1, EXACT_STEPS + 1) if purpose is Purpose.EXACT_EVALUATION else (0,)
                for _ in range(self.models(purpose, done)):
                    yield from (DueSum(purpose, done, step) for step in steps)

    def key(self, purpose: Purpose) -> str:
        """Return the key of the plan that decides when sums of a purpose are due."""
        match purpose:
            case Purpose.TRAINING:
                return "training.rounds"
            case Purpose.SURVEY:
                return "task.survey"
            case Purpose.STANDARDISATION:
                return "task.standardize"
            case Purpose.EVALUATION | Purpose.EXACT_EVALUATION:
                return "evaluation.every"

    def in_words(self, purpose: Purpose) -> str:
        """Return when sums of a purpose are due."""
        match purpose:
            case Purpose.TRAINING:
                return f"in rounds 1 to {self.rounds}"
            case Purpose.SURVEY | Purpose.STANDARDISATION:
                return "before round 1"
            case Purpose.EVALUATION:
                first = "before round 1, " if self.evaluates_first else ""
                return f"{first}after every {self.every} rounds and after round {self.rounds}"
            case Purpose.EXACT_EVALUATION:
                return "after the last round"


def schedule_of(plan: Plan, numeric_columns: int | None = None) -> Schedule:
    """Return which sums a run of the plan makes.

    Args:
        plan: the plan.
        numeric_columns: how many the features have, where their schema is known; None to go by the plan alone, as
            `derived.sums_columns` does.
    """
    return Schedule(
        rounds=plan.training.rounds,
        every=plan.evaluation.every,
        standardises=sums_columns(plan, numeric_columns),
        evaluates=not is_unevaluated(plan),
        averages=returns_mean(plan),
        averaged_from=first_averaged_round(plan),
        exact=evaluates_exactly(plan),
        surveys=surveys(plan),
        evaluates_first=evaluates_beginning(plan),
    )
