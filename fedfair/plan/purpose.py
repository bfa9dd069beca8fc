"""Why something is summed: the words that a plan's schedule, the wire and the records share."""

from __future__ import annotations

import enum


class Purpose(enum.Enum):
    """Why something is summed; the value is the word used on the wire and in records."""

    TRAINING = "training"
    EVALUATION = "evaluation"
    STANDARDISATION = "standardisation"
    EXACT_EVALUATION = "exact-evaluation"


EVALUATIONS = (Purpose.EVALUATION, Purpose.EXACT_EVALUATION)
"""What is asked about a model that is not trained any more."""


def policy_word(purpose: Purpose) -> str:
    """Return the word of a site's policy that allows sums of a purpose: an evaluation is one, however fine."""
    return (Purpose.EVALUATION if purpose in EVALUATIONS else purpose).value
