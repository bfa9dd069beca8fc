"""What an aggregator and its colluders can learn from any pattern of answers where masks form a sparse graph.

As `leakage`, on a ring: each member shares masks with k neighbours, its own mask is shared among them and itself,
T shares open it, and a committee votes. The adversary knows the graph before it chooses who is asked, who is said
to have survived, and whom it tells what. It gives each honest member the most that it accepts: nothing, or one
set of survivors. For this set the member has handed over its masks with all neighbours outside, votes for it
where it is in the committee, and opens it where enough have voted.

A round is safe when at most one sum is learnt, over just the honest members of the set for which enough have
voted.
"""

import itertools
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from fedfair.secagg.params import Mode, least_survivors
from tests.attacks.leakage import Members, _components

Choices = Mapping[int, Members | None]


@dataclass(frozen=True)
class RingRules:
    """What honest members insist on; each default is the protocol's, anything else is a broken variant.

    Members stand on the ring in the order of their numbers, from 0.
    """

    members: int
    neighbours: int
    near: int = 0  # the most colluders that an honest member has among its neighbours
    colluders: frozenset[int] = frozenset()
    committee: frozenset[int] = frozenset()
    votes_needed: int = 1
    lower_threshold: int = 0  # subtracted from T, both for opening and for who must survive nearby
    votes: bool = True
    survivors_nearby: bool = True
    cohort: Members = field(default=frozenset())

    @property
    def shares(self) -> int:
        """Return T of this variant."""
        return self.neighbours // 2 + self.near + 2 - self.lower_threshold

    @property
    def asked(self) -> Members:
        """Return the cohort."""
        return self.cohort or frozenset(range(self.members))

    @property
    def honest(self) -> list[int]:
        """Return the honest members of the cohort."""
        return sorted(self.asked - self.colluders)

    @property
    def least(self) -> int:
        """Return the fewest survivors that are opened."""
        return least_survivors(Mode.MALICIOUS, len(self.asked), len(self.colluders))

    def near_to(self, member: int) -> Members:
        """Return the neighbours of a member in the cohort."""
        steps = range(1, self.neighbours // 2 + 1)
        places = {(member + way * step) % self.members for step in steps for way in (1, -1)}
        return self.asked & places

    def accepts(self, member: int, survivors: Members) -> bool:
        """Return whether an honest member holds to a set of survivors."""
        near = len(survivors & self.near_to(member)) + 1
        enough = near >= self.shares or not self.survivors_nearby
        return member in survivors and len(survivors) >= self.least and enough


def is_sound(rules: RingRules) -> bool:
    """Return whether the conditions of the proof hold; `graph_terms` states how probable that is."""
    bribed = len(rules.committee & rules.colluders)
    voting = 2 * rules.votes_needed > len(rules.committee) + bribed
    return voting and all(len(rules.near_to(one) & rules.colluders) <= rules.near for one in rules.honest)


def leak(rules: RingRules, choices: Choices) -> str:
    """Return in words what one pattern of answers gives away beyond one sum; empty where it is nothing."""
    ballots = Counter(choices[one] for one in rules.honest if one in rules.committee)
    bribed = rules.committee & rules.colluders
    voted = {
        chosen
        for chosen in choices.values()
        if chosen and (not rules.votes or ballots[chosen] + len(bribed & chosen) >= rules.votes_needed)
    }
    given: Counter[int] = Counter()
    for one in rules.honest:
        if (chosen := choices[one]) in voted and chosen is not None:
            given.update((rules.near_to(one) | {one}) & chosen)
    own = {m for m in rules.honest if given[m] + len(rules.near_to(m) & rules.colluders) >= rules.shares}

    def is_read(one: int, other: int) -> bool:
        chosen = choices[one]
        return one in own and chosen is not None and other not in chosen

    hidden = [
        (one, other)
        for one in rules.honest
        for other in rules.near_to(one) - rules.colluders
        if one < other and not is_read(one, other) and not is_read(other, one)
    ]
    learnt = [part for part in _components(rules.honest, hidden) if part <= own]
    if all(any(part == chosen - rules.colluders for chosen in voted) for part in learnt) and len(learnt) <= 1:
        return ""
    return f"{dict(choices)} gives the sums over {[sorted(part) for part in learnt]}"


def accepted_sets(rules: RingRules, member: int) -> list[Members | None]:
    """Return everything that an honest member may be told: nothing, or a set that it accepts."""
    found: list[Members | None] = [None]
    for size in range(rules.least, len(rules.asked) + 1):
        found += [
            s
            for s in map(frozenset, itertools.combinations(sorted(rules.asked), size))
            if rules.accepts(member, s)
        ]
    return found


def every_pattern(rules: RingRules) -> Iterator[Choices]:
    """Yield every pattern in which some set has enough votes; in the others nobody answers anything."""
    honest = rules.honest
    sets = {member: accepted_sets(rules, member) for member in honest}
    voting = [member for member in honest if member in rules.committee]
    others = [member for member in honest if member not in rules.committee]
    bribed = len(rules.committee & rules.colluders)
    for ballots in itertools.product(*(sets[member] for member in voting)):
        counted = Counter(one for one in ballots if one)
        if rules.votes and max(counted.values(), default=0) + bribed < rules.votes_needed:
            continue
        for rest in itertools.product(*(sets[member] for member in others)):
            yield {**dict(zip(voting, ballots, strict=True)), **dict(zip(others, rest, strict=True))}


def drawn_rules(draw: random.Random, members: int, neighbours: int, near: int, colluders: int) -> RingRules | None:
    """Return rules with colluders and a committee anywhere; None where the proof says nothing of them."""
    bad, size = frozenset(draw.sample(range(members), colluders)), draw.randint(1, members)
    committee = frozenset(draw.sample(range(members), size))
    needed = (size + len(committee & bad)) // 2 + 1
    absent = draw.choice((0, 0, 1, neighbours // 4))
    cohort = frozenset(draw.sample(range(members), members - absent)) | bad
    rules = RingRules(members, neighbours, near, bad, committee, needed, cohort=cohort)
    return rules if is_sound(rules) else None


def drawn_pattern(draw: random.Random, rules: RingRules) -> Choices:
    """Return a pattern that tries to part the survivors.

    One set gets the votes: all, or all but anybody, an arc, or two arcs that are as long as a member sees. The
    adversary also picks a part of the ring, and tells members at its borders that their neighbours beyond it are
    missing, as many as each of them believes.
    """
    everybody, n = rules.asked, rules.members
    most = len(everybody) - rules.least
    lengths = draw.choice(([draw.randint(0, most)], [rules.neighbours // 2] * 2))
    if draw.random() < 0.3:
        missing = frozenset(draw.sample(sorted(everybody), draw.randint(0, most)))
    else:
        places = [(draw.randrange(n), length) for length in lengths]
        missing = everybody & {(start + step) % n for start, length in places for step in range(length)}
        missing = missing if len(missing) <= most else frozenset()
    opened = everybody - missing
    start, length = draw.randrange(n), draw.randint(1, n - 1)
    part = {(start + step) % n for step in range(length)}
    if draw.random() < 0.3:
        part = set(draw.sample(range(n), length))
    share = draw.random()
    choices: dict[int, Members | None] = {}
    for member in rules.honest:
        beyond = [one for one in rules.near_to(member) if (one in part) != (member in part)]
        told: Members | None = opened if rules.accepts(member, opened) else None
        if beyond and draw.random() < share:
            draw.shuffle(beyond)
            for most in range(len(beyond), 0, -1):
                if rules.accepts(member, everybody - frozenset(beyond[:most])):
                    told = everybody - frozenset(beyond[:most])
                    break
        choices[member] = told
    return choices
