"""Limits what all plans together ask about one set of records: `policy.all_plans` of a site.

What a site answers under one plan is limited by that plan's own count (`request_limits`). Somebody who submits
one plan after the other begins each of those counts anew. So a site counts over all plans too: the plans that it
has answered, training rounds, and evaluations. Each data set that has a name has its own count, for names promise
that nobody is in two of them; what was answered about records without a name counts for every set, and every set
for these.

Rounds are counted in blocks, so that most of them wait for no disk: the first round of each 16 of a run counts all
of them, as far as the plan has that many. A count may say more than was answered, and never less. Reads rows and
writes none (`answered_facts`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from fedfair.plan.digest import format_digest
from fedfair.plan.schema import Plan
from fedfair.policy.aggregation_request import AggregationRequest
from fedfair.policy.answered_facts import AnsweredFacts, FactTable, Rows, key, number_row
from fedfair.policy.refusal import Refusal
from fedfair.policy.site_config import AllPlansSection

BLOCK: Final = 16
"""Rounds of a run that are counted together."""

_EVERY_SET: Final = "*"
"""No data set has this name: names are of letters; its counts are of all sets together."""


@dataclass(frozen=True, slots=True)
class AnsweredTotals:
    """What a site has answered about a set of records, over all plans.

    Attributes:
        plans: in whose runs it has taken part.
        rounds: training rounds, counted in blocks.
        evaluations: of models.
    """

    plans: int
    rounds: int
    evaluations: int


@dataclass(frozen=True, slots=True)
class _Counted:
    """One thing that counts: what it is, the key of this one, and how many it stands for."""

    kind: str
    member: bytes
    count: int


class AllPlans:
    """The rules of one site over all plans, as one of them asks about its records.

    Args:
        plan: the plan.
        plan_digest: of it, 32 bytes.
        limits: the site's.
        name: the site's, for messages.
        records: the name of its data set; empty where it has none.
    """

    def __init__(self, plan: Plan, plan_digest: bytes, limits: AllPlansSection, name: str, records: str) -> None:
        self._rounds = plan.training.rounds
        self._digest = format_digest(plan_digest)
        self._limits, self._name, self._records = limits, name, records

    def member(self, request: AggregationRequest) -> bytes:
        """Return what requests have in common that count once: of a round, its block; of others, what they ask."""
        return next(self._asked(request)).member

    def decide(self, request: AggregationRequest, table: FactTable) -> Refusal | Rows:
        """Return why a request must not be answered, or what to write down first: nothing, if it is known."""
        facts = AnsweredFacts(table)
        rows: list[tuple[bytes, bytes]] = []
        for asked in self._asked(request):
            if facts.has(asked.member):
                continue
            most: int | None = getattr(self._limits, asked.kind)
            made = self._made(facts, asked.kind)
            if most is not None and made + asked.count > most:
                return self._spent(asked, made, most)
            rows += self._added(facts, asked)
        return tuple(rows)

    def totals(self, table: FactTable) -> AnsweredTotals:
        """Return what was counted so far about these records."""
        facts = AnsweredFacts(table)
        return AnsweredTotals(*(self._made(facts, kind) for kind in ("plans", "rounds", "evaluations")))

    def _asked(self, request: AggregationRequest) -> Iterator[_Counted]:
        kind, about = request.purpose.statistic, (self._records, self._digest)
        if kind.is_round:
            block = (request.round - 1) // BLOCK
            count = max(min(BLOCK, self._rounds - block * BLOCK), 1)
            yield _Counted("rounds", key("block in all", *about, request.run, block), count)
        elif kind.is_evaluation:
            model = request.model_sha256.hex()
            yield _Counted("evaluations", key("evaluation in all", *about, request.purpose.value, model), 1)
        yield _Counted("plans", key("plan in all", *about), 1)

    def _made(self, facts: AnsweredFacts, kind: str) -> int:
        if not self._records:
            return facts.number(_size(kind, _EVERY_SET))
        return facts.number(_size(kind, self._records)) + facts.number(_size(kind, ""))

    def _added(self, facts: AnsweredFacts, asked: _Counted) -> Rows:
        sizes = (_size(asked.kind, self._records), _size(asked.kind, _EVERY_SET))
        counts = tuple(number_row(size, facts.number(size) + asked.count) for size in sizes)
        return ((asked.member, b""), *counts)

    def _spent(self, asked: _Counted, made: int, most: int) -> Refusal:
        of_set = f" about {self._records}" if self._records else ""
        reason = (
            f"the policy of {self._name} allows {most} {asked.kind}{of_set} over all plans; it has answered "
            f"{made}, and this would be {made + asked.count}"
        )
        return Refusal(reason, "all_plans", f"{made + asked.count}", f"at most {most}")


def _size(kind: str, records: str) -> bytes:
    return key("number in all", kind, records)
