"""The table of statistics: one row for each, and nothing outside it names a room of this package.

A row is a member of `Purpose` and brings the columns of `statistic.py`. The schedule, a site's policy, the
disclosures, the ledger and the words for people read them. The header of a contribution and what a site adds are
found in the room of the same name. The number on the wire is the proto's, by the name of the member.
"""

from __future__ import annotations

import enum
from typing import Self

from fedfair.errors import LocalProtocolError
from fedfair.statistics.column_statistics import section as column_statistics
from fedfair.statistics.evaluation import section as evaluation
from fedfair.statistics.exact_evaluation import section as exact_evaluation
from fedfair.statistics.reference import section as reference
from fedfair.statistics.release_audit import section as release_audit
from fedfair.statistics.slices import section as slices
from fedfair.statistics.standardisation import section as standardisation
from fedfair.statistics.statistic import Statistic, When
from fedfair.statistics.survey import section as survey
from fedfair.statistics.training import section as training


class Purpose(enum.Enum):
    """Why something is summed, in the order in which disclosures are listed.

    Attributes:
        statistic: the columns of the row; `value` is its word.
    """

    TRAINING = training.STATISTIC
    EVALUATION = evaluation.STATISTIC
    EXACT_EVALUATION = exact_evaluation.STATISTIC
    STANDARDISATION = standardisation.STATISTIC
    SURVEY = survey.STATISTIC
    REFERENCE = reference.STATISTIC
    SLICES = slices.STATISTIC
    COLUMN_STATISTICS = column_statistics.STATISTIC
    RELEASE_AUDIT = release_audit.STATISTIC

    _value_: str
    statistic: Statistic

    def __new__(cls, statistic: Statistic) -> Self:
        """Return the member of a statistic, whose value is its word."""
        member = object.__new__(cls)
        member._value_, member.statistic = statistic.word, statistic
        return member


IN_A_RUN = tuple(purpose for when in When for purpose in Purpose if purpose.statistic.when is when)
"""All of them, in the order in which a run makes them."""


_NAMED = {purpose.value: purpose for purpose in Purpose}


def purpose_named(word: str) -> Purpose:
    """Return the purpose of a word.

    Raises:
        LocalProtocolError: none has it.
    """
    found = _NAMED.get(word)
    if found is None:
        raise LocalProtocolError(f"no statistic is named {word!r}")
    return found


def room_of(purpose: Purpose) -> str:
    """Return the package with everything of a statistic."""
    return f"{__package__}.{purpose.value.replace('-', '_')}"
