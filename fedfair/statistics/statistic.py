"""The columns of the table of statistics: what plan, policy, ledger and wire have to know of each.

A room of `fedfair.statistics` fills them in `section.py`. The numbers of a contribution are `header.py`'s of the
same room (`aggregation.sum_kinds.SumKind`). No torch.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from fedfair.plan.fields import Disclosure
from fedfair.plan.privacy import SampleLevelSection
from fedfair.plan.schema import Plan


class When(enum.Enum):
    """The moment of a run at which a statistic is summed, in the order of a run."""

    FIRST = "before the features are scaled"
    SCALING = "to scale the features"
    REFERENCE = "to train the references, before round 1"
    ROUND = "in every round"
    EVERY = "before round 1, after every so many rounds, and of the output model where that is another one"
    LAST = "of the output model, at the end"
    SLICED = "of the output model, by the cells of columns"
    AUDITED = "of the output model, by whether it was trained on a record, as the very last"


@dataclass(frozen=True, slots=True)
class Statistic:
    """One statistic.

    Attributes:
        word: its name on the wire, in records and in snapshots. Its room has the same, with underscores.
        when: when a run sums it.
        planned: whether a plan has such sums, in a run or on demand.
        made: whether a run makes them, also by how many numeric columns the features have (None to go by the plan
            alone).
        policy_word: the word in a site's `policy.purposes` that allows it.
        meanings: every kind of what its sums can make known, with what that is.
        discloses: which of them a plan's sums make known.
        asked_by: which key of a plan asks for it, and with which value.
        leaves: sentences about what leaves a site.
        release: the word of a site's ledger for a release of it.
        covers: the same in a statement of differential privacy.
        asked_more_by: `asked_by` for what only some plans make known beside the rest.
        noise: the multiplier of the noise on one sum where single records are protected; None where the steps of a
            round have theirs, and where a plan that protects records makes no such sum.
        steps: how many sums one of it takes.
        is_round: whether its total is a round of training, with a change of the model beside the header.
        draws_anew: whether each attempt at it draws anew; what a site adds to any other sum is always the same.
        is_evaluation: whether it tells how good a model is.
        is_on_demand: whether it may be asked for about a saved model.
        has_query: whether it is one step of several, and says what is asked.
        narrows: whether the prefixes of each of these steps begin with those of the step before.
        is_about_model: whether a contribution depends on the global model.
    """

    word: str
    when: When
    planned: Callable[[Plan], bool]
    made: Callable[[Plan, int | None], bool]
    policy_word: str
    meanings: Mapping[Disclosure, str]
    discloses: Callable[[Plan], tuple[Disclosure, ...]]
    asked_by: Callable[[Plan], str]
    leaves: Callable[[Plan], Iterator[str]]
    release: str
    covers: str
    asked_more_by: Mapping[Disclosure, str] = field(default_factory=dict)
    noise: Callable[[SampleLevelSection], float] | None = None
    steps: int = 1
    is_round: bool = False
    draws_anew: bool = False
    is_evaluation: bool = False
    is_on_demand: bool = False
    has_query: bool = False
    narrows: bool = False
    is_about_model: bool = True
