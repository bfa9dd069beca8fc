"""Names and numbers that identify things, parsed once at the border.

`ParticipantId` and `FederationName` travel in certificates and file names, so they are short, lower-case and
without surprises. `RoundNumber` counts training rounds from 1; `SumNumber` counts every secure or plain sum
(training, evaluation, a retry), never repeats within a run, and only grows.
"""

from __future__ import annotations

import re
from typing import NewType

from fedfair.errors import FedfairError

ParticipantId = NewType("ParticipantId", str)
FederationName = NewType("FederationName", str)
RoundNumber = NewType("RoundNumber", int)
SumNumber = NewType("SumNumber", int)

AGGREGATOR = ParticipantId("aggregator")
"""The one participant that is not a collaborator; no collaborator may carry this name."""

MAX_NAME_LENGTH = 40
_NAME = re.compile(rf"[a-z0-9](?:[a-z0-9-]{{0,{MAX_NAME_LENGTH - 2}}}[a-z0-9])?")


def parse_participant_id(text: str) -> ParticipantId:
    """Return `text` as a collaborator's name.

    Raises:
        FedfairError: the name is not 1 to 40 of a-z, 0-9 and inner hyphens, or is reserved.
    """
    if text == AGGREGATOR:
        raise FedfairError(
            f"'{text}' is reserved and cannot name a collaborator", "choose another name, such as clinic-a"
        )
    return ParticipantId(_checked_name(text, "collaborator name"))


def parse_federation_name(text: str) -> FederationName:
    """Return `text` as a federation's name.

    Raises:
        FedfairError: the name is not 1 to 40 of a-z, 0-9 and inner hyphens.
    """
    return FederationName(_checked_name(text, "federation name"))


def _checked_name(text: str, what: str) -> str:
    if not _NAME.fullmatch(text):
        raise FedfairError(
            f"{what} {text!r} is not usable in a certificate",
            f"use 1 to {MAX_NAME_LENGTH} of a-z, 0-9 and '-', beginning and ending with a letter or digit",
        )
    return text
