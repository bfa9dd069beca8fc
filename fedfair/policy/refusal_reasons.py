"""Reasons why a collaborator takes no part: a closed list, the only words of its own that leave a site.

No reason holds a number, a name or a word that depends on records. An `Abstain` frame carries the place of one of
them in this list, so a frame has the same length whatever the records are. What a site knows beyond that (which
value, which limit, which record) goes into its own log and onto its own terminal.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from fedfair.secagg.checks import Check

TERMS: Final = (
    "allow_plain_sums", "allow_module_code", "module_code", "initial_weights", "algorithms", "reveals",
    "publish_site_means", "max_bins", "max_bins_per_record", "max_rounds", "max_runs", "evaluation_cohort",
    "max_evaluations", "max_evaluations_on_demand", "min_collaborators", "mode", "colluders", "key_agreement",
    "ring_bits", "max_clip", "max_attempts", "purposes", "training_cohort", "earlier_cohort", "max_reopened_sums",
    "rows",
)  # fmt: skip
"""The keys of a site's policy that refuse a request in their own name."""

CHECKS: Final = tuple(check.value for check in Check if check is not Check.GRAPH)
"""The checks of secure aggregation that do; a graph that was not drawn is told in general words."""


class RefusalReason(enum.Enum):
    """One reason; the value is the sentence that the aggregator shows, with the site as its subject."""

    _ignore_ = ["term", "check", "word"]  # noqa: RUF012 - the enumeration takes it away

    PLAN_EVALUATION = "the plan has no evaluation of this model now"
    PLAN_STANDARDISATION = "the plan has no standardisation now"
    PLAN_SURVEY = "the plan has no survey now"
    SURVEY = "it stops after the survey, as its own policy says: survey"
    EXACT_QUERY = "the step does not continue the exact evaluation that it has answered"
    BUDGET = "its privacy budget allows no further release, so it withdraws"
    VALUES = "it has no finite numbers to add in the clear"
    PROTOCOL = "it refuses a message of the aggregator"
    OWN_STATE = "it lost what it must remember of the run, so it withdraws"
    POLICY = "its own rules refuse the request"
    for term in TERMS:
        vars()[f"POLICY_{term.upper()}"] = f"its own policy refuses the request: {term}"
    SECAGG = "its secure aggregation refuses the request"
    for check in CHECKS:
        word = check.upper().replace("-", "_")
        vars()[f"SECAGG_{word}"] = f"its secure aggregation refuses the request: {check}"


ACCUSING: Final = frozenset({RefusalReason["SECAGG_ENVELOPE"], RefusalReason["SECAGG_SHARE"]})
"""The reasons that may name another member: what it sealed does not open, or holds no shares."""

_NAMED: Mapping[str, RefusalReason] = MappingProxyType(
    {
        "evaluation.every": RefusalReason.PLAN_EVALUATION,
        "task.standardize": RefusalReason.PLAN_STANDARDISATION,
        "task.survey": RefusalReason.PLAN_SURVEY,
        "survey": RefusalReason.SURVEY,
        "exact-evaluation": RefusalReason.EXACT_QUERY,
        "budget": RefusalReason.BUDGET,
        "values": RefusalReason.VALUES,
        "own-state": RefusalReason.OWN_STATE,
        "protocol": RefusalReason.PROTOCOL,
        "secure aggregation": RefusalReason.SECAGG,
    }
    | {word: RefusalReason[f"POLICY_{word.upper()}"] for word in TERMS}
    | {f"secure aggregation: {word}": RefusalReason[f"SECAGG_{word.upper().replace('-', '_')}"] for word in CHECKS}
)


def reason_for(term: str) -> RefusalReason:
    """Return the reason for the aggregator where a term of a site's rules refuses a request.

    Args:
        term: a key of the site's policy, such as "max_rounds"; a key of the plan; or "secure aggregation: " and
            the word of a check. A term that has no reason of its own gets general words.
    """
    if term.startswith("secure aggregation"):
        return _NAMED.get(term, RefusalReason.SECAGG)
    return _NAMED.get(term, RefusalReason.POLICY)
