"""Where a run begins again without the persons who have withdrawn: the last state in which none of them counted.

A plan continues from the plans before it, each from the state in which the one before ended. The first of them in
whose run a withdrawn record counted, at any site, is run again; what came before is as it was. Nothing is unlearnt
from a model: every round since then is computed again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fedfair.withdrawal.notice import BEGINS, WithdrawalNotice


@dataclass(frozen=True, slots=True)
class RerunPlace:
    """The first plan of a chain that is run again.

    Attributes:
        place: its place in the chain, from 0; None where no run of the chain is affected.
        begins_affected: whether the model that the whole chain begins with is of an affected run itself.
        sites: those whose records were withdrawn.
    """

    place: int | None
    begins_affected: bool
    sites: tuple[str, ...]


def rerun_place(chain: Sequence[str], notices: Iterable[WithdrawalNotice]) -> RerunPlace:
    """Return where a chain of runs begins again.

    Args:
        chain: digests of the plans, the oldest first; the last one is the plan itself.
        notices: of its sites, verified. Of a run that a later one of the same plan supersedes nothing follows.
    """
    said = [(notice.participant, one) for notice in notices for one in notice.runs if not one.superseded_by]
    found = [(chain.index(one.plan), site, one) for site, one in said if one.plan in chain]
    first = min((place for place, *_ in found), default=None)
    begins = any(place == 0 and one.how == BEGINS for place, _, one in found)
    return RerunPlace(first, begins, tuple(dict.fromkeys(site for _, site, _ in found)))
