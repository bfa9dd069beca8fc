"""The sums that a run makes, and when: derived from the plan once, for all who have to know.

The run walks it, a site refuses what is not on it, terms and disclosures name its purposes, and the privacy
forecast prices its sums. In order:

    COLUMN_STATISTICS, and nothing else, where the plan asks for statistics; otherwise
    [SURVEY] -> [STANDARDISATION] -> [REFERENCE 1..R] -> [EVALUATION (round 0)]
    -> TRAINING 1..T, with an EVALUATION after every `every` rounds and after the last
    -> [EVALUATION of the output model, where it is a mean and so another one than the last]
    -> [EXACT_EVALUATION of the output model, four sums, where the plan asks for it]
    -> [SLICES of the same model, three sums, where the plan asks for them]
    -> [RELEASE_AUDIT of the same model, where the plan asks for it]

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
    first_averaged_round,
    reference_of,
    returns_mean,
    threshold_beginning,
    trains,
    trains_references,
)
from fedfair.plan.schema import Plan
from fedfair.statistics.statistic import When
from fedfair.statistics.table import IN_A_RUN, Purpose


@dataclass(frozen=True, slots=True)
class DueSum:
    """One sum of a run.

    Attributes:
        purpose: why it is made.
        round: the training round, from 1; with any other purpose, the number of rounds done so far.
        step: of an exact evaluation, of slices, of an audit, or among the sums of the references, from 1;
            otherwise 0.
    """

    purpose: Purpose
    round: int
    step: int = 0


@dataclass(frozen=True, slots=True)
class Schedule:
    """The sums that a run makes, and when.

    Attributes:
        rounds: how many training rounds there are; none where the run ends with statistics of columns.
        every: rounds between two evaluations, at least 1.
        averages: whether the output model is a mean.
        averaged_from: rounds done before the first model of that mean was broadcast.
        purposes: why the run sums anything, in the order of `Purpose`.
        evaluates_first: whether the model before round 1 is evaluated.
        learns_first: whether that evaluation gives the threshold, and so is about a model with another one.
        reference_sums: in how many sums the references are trained, at most.
    """

    rounds: int
    every: int
    averages: bool
    averaged_from: int
    purposes: tuple[Purpose, ...]
    evaluates_first: bool = True
    learns_first: bool = False
    reference_sums: int = 0

    @property
    def evaluates(self) -> bool:
        """Return whether there are evaluations at all."""
        return any(purpose.statistic.when is When.EVERY for purpose in self.purposes)

    def at(self, *moments: When) -> tuple[Purpose, ...]:
        """Return what the run sums at these moments, in its order."""
        return tuple(
            purpose for purpose in IN_A_RUN if purpose in self.purposes and purpose.statistic.when in moments
        )

    def evaluates_after(self, rounds_done: int) -> bool:
        """Return whether the model that so many rounds lead to is evaluated."""
        due = rounds_done % self.every == 0 or rounds_done == self.rounds
        return self.evaluates and due and (rounds_done > 0 or self.evaluates_first)

    @property
    def evaluates_output(self) -> bool:
        """Return whether the output model is evaluated by itself: as a mean that is no model evaluated before."""
        is_one_model = self.averaged_from + 1 >= self.rounds
        is_learnt = self.learns_first and self.averaged_from == 0
        known = is_one_model and self.evaluates_after(self.averaged_from) and not is_learnt
        return self.averages and self.evaluates and not known

    def models(self, purpose: Purpose, rounds_done: int) -> int:
        """Return about how many models a run makes sums when so many of its rounds are done.

        Args:
            purpose: of the sums; the sums of an exact evaluation or of slices are about one model, and the sum of
                columns counts as one.
            rounds_done: from 0; with `TRAINING`, the round itself, from 1.
        """
        if purpose not in self.purposes:
            return 0
        match purpose.statistic.when:
            case When.FIRST | When.SCALING:
                return int(rounds_done == 0)
            case When.REFERENCE:
                return self.reference_sums * int(rounds_done == 0)
            case When.ROUND:
                return int(1 <= rounds_done <= self.rounds)
            case When.EVERY:
                own = self.evaluates_output and rounds_done == self.rounds
                return int(self.evaluates_after(rounds_done)) + int(own)
            case When.LAST | When.SLICED | When.AUDITED:
                return int(rounds_done == self.rounds)

    def total(self, purpose: Purpose, rounds_done: int | None = None) -> int:
        """Return about how many models there are sums up to and with so many rounds; None for the whole run."""
        done = self.rounds if rounds_done is None else rounds_done
        return sum(self.models(purpose, past) for past in range(done + 1))

    def sums(self) -> Iterator[DueSum]:
        """Yield in order every sum of a run in which none is lost, omitted or repeated.

        The references may be done before all of their sums.
        """
        for done in range(self.rounds + 1):
            for purpose in IN_A_RUN:
                steps = purpose.statistic.steps
                numbers = range(1, steps + 1) if purpose.statistic.has_query else (0,)
                for place in range(self.models(purpose, done)):
                    if purpose.statistic.when is When.REFERENCE:
                        numbers = (place + 1,)
                    yield from (DueSum(purpose, done, step) for step in numbers)


def schedule_of(plan: Plan, numeric_columns: int | None = None) -> Schedule:
    """Return which sums a run of the plan makes.

    Args:
        plan: the plan.
        numeric_columns: how many the features have, where their schema is known; None to go by the plan alone, as
            `derived.sums_columns` does.
    """
    return Schedule(
        rounds=plan.training.rounds if trains(plan) else 0,
        every=plan.evaluation.every,
        averages=returns_mean(plan),
        averaged_from=first_averaged_round(plan),
        purposes=tuple(purpose for purpose in Purpose if purpose.statistic.made(plan, numeric_columns)),
        evaluates_first=evaluates_beginning(plan),
        learns_first=threshold_beginning(plan) == "quantile",
        reference_sums=reference_of(plan).rounds if trains_references(plan) else 0,
    )
