"""The list of terms, that is, of all the ways in which a plan may change a step; nothing else names a room.

Whatever a run, a site or a simulation does for terms, it does for every row that a plan has. A plan without a term
has an empty list of them, and nobody asks whether there is one. No torch: the aggregator imports this.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fedfair.aggregation.header import Field, Header, Number
from fedfair.aggregation.training_sum import WEIGHTS, Divisor, training_header
from fedfair.plan.derived import is_masked, keeps_site_thresholds
from fedfair.plan.learning_rates import weight_decay_of
from fedfair.plan.schema import Plan
from fedfair.terms.clip import state as clip
from fedfair.terms.group_weights import section as group_section
from fedfair.terms.group_weights import state as groups
from fedfair.terms.kept import SLOT, SLOT_NAME
from fedfair.terms.kept_parameters import state as kept_parameters
from fedfair.terms.loss_powers import section as powers
from fedfair.terms.server_step import state as server_step
from fedfair.terms.site_thresholds import state as site_thresholds
from fedfair.terms.slot import Slot
from fedfair.terms.term import Moved, OpenedRound, StepTerm, TermSetting
from fedfair.terms.variates import section as variate_section
from fedfair.terms.variates import state as variates
from fedfair.terms.weight_decay import state as weight_decay

TERMS = (
    StepTerm(
        "variates",
        variate_section.applies,
        variates.rule,
        (SLOT_NAME, SLOT),
        variate_section.fields,
        shown=variate_section.shown,
        at_sites=True,
        batched=True,
    ),
    StepTerm(
        "site_thresholds",
        keeps_site_thresholds,
        site_thresholds.rule,
        (SLOT_NAME, SLOT),
        at_sites=True,
        batched=True,
    ),
    StepTerm("kept_parameters", kept_parameters.applies, kept_parameters.rule, (SLOT_NAME, SLOT), at_sites=True),
    StepTerm(
        "group_weights",
        group_section.applies,
        groups.rule,
        ("groups", groups.SLOT),
        group_section.fields,
        shown=group_section.shown,
        at_sites=True,
        batched=True,
    ),
    StepTerm(
        "loss_powers", powers.applies, fields=powers.fields, divisor=powers.DIVISOR, at_sites=True, batched=True
    ),
    StepTerm("clip", is_masked, clip.rule, ("clip", clip.SLOT)),
    StepTerm("weight_decay", lambda plan: weight_decay_of(plan) > 0.0, weight_decay.rule),
    # Of those that read the summed change the last, because it may use up its memory.
    StepTerm("server_step", lambda _: True, server_step.rule, (server_step.SLOT_NAME, server_step.SLOT)),
)
"""All terms, in the order in which a round goes through them."""

TermStates = Mapping[str, Any]
"""The states of the terms of one plan, by slot; only of those that keep something."""

TERM_SLOTS: Mapping[str, Slot[Any, Any]] = dict(term.slot for term in TERMS if term.slot is not None)


def terms_of(plan: Plan) -> tuple[StepTerm, ...]:
    """Return the terms that a plan has."""
    return tuple(term for term in TERMS if term.applies(plan))


def further_fields(plan: Plan, classes: int) -> tuple[Field, ...]:
    """Return what the terms of a plan add to the header of its training sums."""
    return tuple(field for term in terms_of(plan) for field in term.fields(plan, classes))


def training_layout(plan: Plan, classes: int) -> Header:
    """Return the header of a plan's training sums.

    Args:
        plan: the plan.
        classes: how many there are.
    """
    return training_header(further_fields(plan, classes))


def is_bounded(plan: Plan, classes: int) -> bool:
    """Return whether the change of the threshold is the only real number in the header of a training sum."""
    return all(field.number is not Number.REAL for field in further_fields(plan, classes))


def divisor_of(plan: Plan) -> Divisor:
    """Return what the summed change of the model is divided by."""
    return next((term.divisor for term in terms_of(plan) if term.divisor is not None), WEIGHTS)


def words_of(found: Iterable[str]) -> str:
    """Return the words of several terms as the end of a sentence; empty where they have none."""
    return "".join(f"; {words}" for words in found if words)


def shown_by_terms(plan: Plan) -> str:
    """Return what a round shows where a site can be left out of it, as the end of a sentence."""
    return words_of(term.shown(plan) for term in terms_of(plan))


class PlanTerms:
    """The rules of the terms of one plan, one after the other.

    Args:
        setting: the plan, and what its rules are made from.
    """

    def __init__(self, setting: TermSetting) -> None:
        self._rules = tuple((_slot_name(term), term.rule(setting)) for term in terms_of(setting.plan))
        self._firsts = {name: rule.first for name, rule in self._rules}

    @property
    def first(self) -> TermStates:
        """Return the states before round 1."""
        return {name: held for name, held in self._firsts.items() if held is not None}

    def read_by_sites(self, states: TermStates, *, is_round: bool) -> TermStates:
        """Return the states that sites read in a round of training, or in any other sum."""
        return {
            name: states[name]
            for name, rule in self._rules
            if (rule.is_read_by_sites if is_round else rule.is_read_in_every_sum) and name in states
        }

    def may_be(self, states: TermStates, rounds_done: int) -> bool:
        """Return whether a run may have reached these states after so many rounds."""
        return states.keys() == self.first.keys() and all(
            rule.may_be(states[name], rounds_done) for name, rule in self._rules if name in states
        )

    def housed(self, states: TermStates) -> TermStates:
        """Return the same states with their long vectors in the run's room; the very same where they are there.

        Raises:
            OSError: there is no room.
        """
        housed = {name: rule.housed(states[name]) for name, rule in self._rules if name in states}
        return states if all(housed[name] is held for name, held in states.items()) else housed

    def after(self, states: TermStates, opened: OpenedRound) -> tuple[TermStates, Moved]:
        """Return the states after a round, and the model as the last term leaves it; see `TermRule.apply`."""
        held, model = {}, opened.before
        for name, rule in self._rules:
            held[name], model = rule.apply(states.get(name), opened, model)
        return {name: after for name, after in held.items() if after is not None}, model


def _slot_name(term: StepTerm) -> str:
    return term.name if term.slot is None else term.slot[0]
