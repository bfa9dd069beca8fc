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


class RefusalReason(enum.Enum):
    """One reason; the value is the sentence that the aggregator shows, with the site as its subject."""

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
    POLICY_ALLOW_PLAIN_SUMS = "its own policy refuses the request: allow_plain_sums"
    POLICY_ALLOW_MODULE_CODE = "its own policy refuses the request: allow_module_code"
    POLICY_MODULE_CODE = "its own policy refuses the request: module_code"
    POLICY_INITIAL_WEIGHTS = "its own policy refuses the request: initial_weights"
    POLICY_ALGORITHMS = "its own policy refuses the request: algorithms"
    POLICY_REVEALS = "its own policy refuses the request: reveals"
    POLICY_PUBLISH_SITE_MEANS = "its own policy refuses the request: publish_site_means"
    POLICY_MAX_BINS = "its own policy refuses the request: max_bins"
    POLICY_MAX_BINS_PER_RECORD = "its own policy refuses the request: max_bins_per_record"
    POLICY_ALL_PLANS = "its own policy refuses the request: all_plans"
    POLICY_MAX_ROUNDS = "its own policy refuses the request: max_rounds"
    POLICY_MAX_RUNS = "its own policy refuses the request: max_runs"
    POLICY_EVALUATION_COHORT = "its own policy refuses the request: evaluation_cohort"
    POLICY_MAX_EVALUATIONS = "its own policy refuses the request: max_evaluations"
    POLICY_MAX_EVALUATIONS_ON_DEMAND = "its own policy refuses the request: max_evaluations_on_demand"
    POLICY_MIN_COLLABORATORS = "its own policy refuses the request: min_collaborators"
    POLICY_MODE = "its own policy refuses the request: mode"
    POLICY_COLLUDERS = "its own policy refuses the request: colluders"
    POLICY_KEY_AGREEMENT = "its own policy refuses the request: key_agreement"
    POLICY_RING_BITS = "its own policy refuses the request: ring_bits"
    POLICY_MAX_CLIP = "its own policy refuses the request: max_clip"
    POLICY_MAX_ATTEMPTS = "its own policy refuses the request: max_attempts"
    POLICY_PURPOSES = "its own policy refuses the request: purposes"
    POLICY_TRAINING_COHORT = "its own policy refuses the request: training_cohort"
    POLICY_EARLIER_COHORT = "its own policy refuses the request: earlier_cohort"
    POLICY_MAX_REOPENED_SUMS = "its own policy refuses the request: max_reopened_sums"
    POLICY_ROWS = "its own policy refuses the request: rows"
    POLICY_RELEASE = "its own policy refuses the request: release"
    SECAGG = "its secure aggregation refuses the request"
    SECAGG_ENCODING = "its secure aggregation refuses the request: encoding"
    SECAGG_POLICY = "its secure aggregation refuses the request: policy"
    SECAGG_PLAN = "its secure aggregation refuses the request: plan"
    SECAGG_LAYOUT = "its secure aggregation refuses the request: layout"
    SECAGG_MEMBERSHIP = "its secure aggregation refuses the request: membership"
    SECAGG_SIGNATURE = "its secure aggregation refuses the request: signature"
    SECAGG_OWN_ADVERT = "its secure aggregation refuses the request: own-advert"
    SECAGG_KEY = "its secure aggregation refuses the request: key"
    SECAGG_CONFIRM = "its secure aggregation refuses the request: confirm"
    SECAGG_SESSION = "its secure aggregation refuses the request: session"
    SECAGG_ROUND_ORDER = "its secure aggregation refuses the request: round-order"
    SECAGG_SESSION_EXPIRED = "its secure aggregation refuses the request: session-expired"
    SECAGG_STATE = "its secure aggregation refuses the request: state"
    SECAGG_REQUEST = "its secure aggregation refuses the request: request"
    SECAGG_COHORT = "its secure aggregation refuses the request: cohort"
    SECAGG_THRESHOLD = "its secure aggregation refuses the request: threshold"
    SECAGG_ATTEMPTS = "its secure aggregation refuses the request: attempts"
    SECAGG_TRANSCRIPT = "its secure aggregation refuses the request: transcript"
    SECAGG_OUT_OF_ORDER = "its secure aggregation refuses the request: out-of-order"
    SECAGG_ONE_VOTE = "its secure aggregation refuses the request: one-vote"
    SECAGG_ONE_ANSWER = "its secure aggregation refuses the request: one-answer"
    SECAGG_SURVIVORS = "its secure aggregation refuses the request: survivors"
    SECAGG_VOTES = "its secure aggregation refuses the request: votes"
    SECAGG_ENVELOPE = "its secure aggregation refuses the request: envelope"
    SECAGG_REUSED_UPDATE = "its secure aggregation refuses the request: reused-update"
    SECAGG_VECTOR = "its secure aggregation refuses the request: vector"
    SECAGG_TAG = "its secure aggregation refuses the request: tag"
    SECAGG_COMMITMENT = "its secure aggregation refuses the request: commitment"
    SECAGG_SHARE = "its secure aggregation refuses the request: share"
    SECAGG_DUPLICATE = "its secure aggregation refuses the request: duplicate"
    SECAGG_LATE = "its secure aggregation refuses the request: late"
    SECAGG_PLAUSIBILITY = "its secure aggregation refuses the request: plausibility"
    SECAGG_SUM = "its secure aggregation refuses the request: sum"


ACCUSING: Final = frozenset({RefusalReason.SECAGG_ENVELOPE, RefusalReason.SECAGG_SHARE})
"""The reasons that may name another member: what it sealed does not open, or holds no shares."""

_POLICY: Final = "POLICY_"
_SECAGG: Final = "SECAGG_"

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
    | {
        reason.name.removeprefix(_POLICY).lower(): reason
        for reason in RefusalReason
        if reason.name.startswith(_POLICY)
    }
    | {
        f"secure aggregation: {reason.name.removeprefix(_SECAGG).lower().replace('_', '-')}": reason
        for reason in RefusalReason
        if reason.name.startswith(_SECAGG)
    }
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
