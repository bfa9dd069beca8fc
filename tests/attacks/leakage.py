"""What an aggregator and its colluders can learn from any pattern of answers, by exhaustive enumeration.

A symbolic model of one round T_r over a cohort of n, all of whom have uploaded. The adversary holds every upload,
every share of the n_C colluders, and gives each honest member the most it accepts: nothing, a request to open
the whole cohort, or a set of survivors: it hands over its masks with the others, under its own mask, votes, and
opens the set where enough have voted. Masks are symbols: y_u = x_u + b_u + sum of +-s_uv.

The mask s_uv is known where b_u is open and u has handed the mask over, for whichever set; or the other way round.

What is learnt follows from linear algebra: a combination of uploads is mask-free exactly when it is constant on
the components that unopened pair masks connect, and zero where b is not opened. So the adversary learns the sums
over those components of honest members whose b are all opened. The round is safe when that is at most one
sum, over at least max(t, n_C + 2) - n_C honest members.
"""

import itertools
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from fedfair.secagg.params import Mode, least_survivors, threshold

Members = frozenset[int]
Request = tuple[Members, Members]  # survivors, and those whose pair masks with survivors are opened


@dataclass(frozen=True)
class Rules:
    """What honest members insist on; each default is the protocol's, anything else is a broken variant."""

    members: int
    colluders: int
    votes: bool = True
    lower_threshold: int = 0  # subtracted from t
    answers: int = 1
    dropped_by_aggregator: bool = False

    @property
    def threshold(self) -> int:
        """Return t of this variant."""
        return threshold(Mode.MALICIOUS, self.members, self.colluders) - self.lower_threshold

    @property
    def honest(self) -> range:
        """Return the honest members; by symmetry the colluders are the last ones."""
        return range(1, self.members - self.colluders + 1)

    @property
    def least(self) -> int:
        """Return the fewest survivors that are opened."""
        if self.lower_threshold:
            return max(self.threshold, self.colluders + 2)
        return least_survivors(Mode.MALICIOUS, self.members, self.colluders)


def leaks(rules: Rules) -> tuple[int, int, str]:
    """Return how many strategies there are, how many leak, and the first leak in words."""
    seen = leaking = 0
    example = ""
    for strategy in _strategies(rules):
        seen += 1
        learnt = _learnt(rules, _answered(rules, strategy), _handed_over(strategy))
        if len(learnt) > 1 or any(len(part) < rules.least - rules.colluders for part in learnt):
            leaking += 1
            example = example or f"{strategy} gives the sums over {[sorted(part) for part in learnt]}"
    return seen, leaking, example


def leaks_of_drawn(rules: Rules, draws: int, seed: int) -> int:
    """Return how many of so many drawn strategies leak, for cohorts that are too large to go through all.

    The aggregator opens the whole cohort, or one set, with just enough honest members. It tells the others of one
    to four more sets that leave out as many of those as it may, or anybody.
    """
    draw = random.Random(seed)  # noqa: S311 - which lie
    everybody, most = frozenset(range(1, rules.members + 1)), rules.members - rules.least
    found = 0
    for _ in range(draws):
        opened = everybody - frozenset(draw.sample(sorted(everybody), draw.choice((0, 0, most))))
        present = sorted(opened & frozenset(rules.honest))
        opening = draw.sample(present, min(len(present), max(1, rules.threshold - rules.colluders)))
        told = []
        for _ in range(draw.randint(1, 4)):
            whom = sorted(opening if draw.random() < 0.7 else everybody)
            told.append(everybody - frozenset(draw.sample(whom, min(most, len(whom)))))
        strategy = []
        for member in rules.honest:
            sets = [opened] if member in opening else [one for one in told if member in one]
            chosen = draw.choice(sets) if sets else None
            strategy.append(() if chosen is None else ((chosen, everybody - chosen),))
        learnt = _learnt(rules, _answered(rules, tuple(strategy)), _handed_over(tuple(strategy)))
        found += len(learnt) > 1 or any(len(part) < rules.least - rules.colluders for part in learnt)
    return found


def _strategies(rules: Rules) -> Iterator[tuple[tuple[Request, ...], ...]]:
    return itertools.product(*(_choices(rules, member) for member in rules.honest))


def _choices(rules: Rules, member: int) -> list[tuple[Request, ...]]:
    everybody, requests = frozenset(range(1, rules.members + 1)), []
    for size in range(rules.least, rules.members + 1):
        for chosen in itertools.combinations(sorted(everybody), size):
            survivors = frozenset(chosen)
            if member in survivors:
                named = _subsets(everybody) if rules.dropped_by_aggregator else [everybody - survivors]
                requests += [(survivors, dropped) for dropped in named]
    return [given for count in range(rules.answers + 1) for given in itertools.combinations(requests, count)]


def _subsets(members: Members) -> Iterator[Members]:
    for size in range(len(members) + 1):
        yield from map(frozenset, itertools.combinations(sorted(members), size))


def _answered(rules: Rules, strategy: tuple[tuple[Request, ...], ...]) -> Counter[Request]:
    """Return how many honest members answer each request."""
    asked = Counter(request for requests in strategy for request in requests)
    if not rules.votes:
        return asked
    colluders = frozenset(range(1, rules.members + 1)) - frozenset(rules.honest)
    return Counter(
        {
            (survivors, dropped): count
            for (survivors, dropped), count in asked.items()
            if len(survivors) == rules.members or count + len(colluders & survivors) >= rules.threshold
        }
    )


def _handed_over(strategy: tuple[tuple[Request, ...], ...]) -> tuple[Members, ...]:
    """Return for each honest member with whom it has handed over its masks; they are read once its b is open."""
    return tuple(map(_named, strategy))


@lru_cache(maxsize=1 << 12)
def _named(requests: tuple[Request, ...]) -> Members:
    return frozenset().union(*(dropped for _, dropped in requests))


def _learnt(rules: Rules, answered: Counter[Request], handed_over: tuple[Members, ...]) -> tuple[Members, ...]:
    return _learnt_from(rules, frozenset(answered.items()), handed_over)


@lru_cache(maxsize=1 << 18)
def _learnt_from(
    rules: Rules, answered: frozenset[tuple[Request, int]], handed_over: tuple[Members, ...]
) -> tuple[Members, ...]:
    missing = rules.threshold - rules.colluders

    def opened(shares: Iterable[int]) -> bool:
        return sum(shares) >= missing

    own = {i for i in rules.honest if opened(n for (s, _), n in answered if i in s)}
    hidden = [
        (i, j)
        for i, j in itertools.combinations(rules.honest, 2)
        if not (i in own and j in handed_over[i - 1]) and not (j in own and i in handed_over[j - 1])
    ]
    return tuple(part for part in _components(rules.honest, hidden) if part <= own)


def _components(nodes: Iterable[int], edges: list[tuple[int, int]]) -> list[Members]:
    parts = [frozenset({node}) for node in nodes]
    for i, j in edges:
        joined = [part for part in parts if i in part or j in part]
        parts = [part for part in parts if part not in joined] + [frozenset().union(*joined)]
    return parts
