"""How many persons must have withdrawn before this site adds to an exact sum again: `policy.withdrawals.together`.

A run over the same sites without one person is that person's part in the clear: the same model evaluated before
and after gives two sums, and their difference is the one record's loss. So a site waits until as many persons have
withdrawn as its policy says: the difference is then a sum over so many. Every earlier run without noise counts,
and so does a run that is under way. Noise of this plan, or of the earlier one, covers the difference.
"""

from __future__ import annotations

from fedfair.plan.derived import is_noised
from fedfair.plan.schema import Plan
from fedfair.policy.site_config import SitePolicy
from fedfair.policy.terms import Term
from fedfair.withdrawal.lineage import CountedRuns, least_difference

TERM = "withdrawals"


def together_term(plan: Plan, policy: SitePolicy, runs: CountedRuns, withdrawn: frozenset[int]) -> Term | None:
    """Return the broken term of a site's policy about those who have withdrawn; None where it is kept.

    Args:
        plan: what the site is asked.
        policy: its own.
        runs: in which persons counted at this site.
        withdrawn: who has withdrawn.
    """
    least, few = policy.withdrawals.together, least_difference(runs, withdrawn)
    if is_noised(plan) or not 0 < few < least:
        return None
    fault = (
        f"an earlier run of this site counted {few} persons who have withdrawn since, and its policy wants "
        f"{least} or none: the sums of this plan and of that run can be subtracted, which shows their part alone"
    )
    change = (
        f"wait until {least} have withdrawn, let the plan state epsilon, or set policy.{TERM}.together: {few} "
        "(docs/how-to/withdrawal-by-a-person.md says what that costs)"
    )
    return Term(TERM, f"{few} persons", f"{least} or more", fault, change)
