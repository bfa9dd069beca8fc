"""Which sums beside training a plan makes due in a run, so that a site can refuse every other.

Mirrors the order that `fedfair.learning.server` keeps to: the standardisation, where the plan asks for one; the
evaluations before round 1, after every `evaluation.every` rounds, after the last; then the output model, where it
is a mean and so another one than the last; then its exact evaluation, where the plan asks for one. Nothing but
training is summed where whole collaborators are protected: no other sum carries the noise for that.
"""

from __future__ import annotations

from fedfair.plan.schema import Plan

MEANS = frozenset({"average", "tail"})


def evaluated_models(plan: Plan, rounds_done: int) -> int:
    """Return how many models a run evaluates when so many of its rounds are done."""
    if plan.privacy.collaborator_level is not None:
        return 0
    last = plan.training.rounds
    due = rounds_done % plan.evaluation.every == 0 or rounds_done == last
    return int(due) + int(rounds_done == last and plan.training.output in MEANS)


def exactly_evaluated_models(plan: Plan, rounds_done: int) -> int:
    """Return how many models a run evaluates exactly when so many of its rounds are done."""
    return int(plan.evaluation.method == "exact" and rounds_done == plan.training.rounds)


def standardisations(plan: Plan, rounds_done: int) -> int:
    """Return how many standardisation sums a run makes when so many of its rounds are done: one, or none."""
    asked = plan.task.standardize == "secure" and plan.privacy.collaborator_level is None
    return int(asked and rounds_done == 0)


def due_in_words(plan: Plan) -> str:
    """Return when a run evaluates."""
    every = plan.evaluation.every
    return f"before round 1, after every {every} rounds and after round {plan.training.rounds}"
