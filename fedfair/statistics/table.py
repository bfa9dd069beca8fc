"""The purposes of a sum: the words that a plan's schedule, the wire and the records share."""

from __future__ import annotations

import enum


class Purpose(enum.Enum):
    """Why something is summed; the value is the word used on the wire and in records."""

    TRAINING = "training"
    EVALUATION = "evaluation"
    STANDARDISATION = "standardisation"
    EXACT_EVALUATION = "exact-evaluation"
    SURVEY = "survey"
