"""Names for everything that this protocol refuses, so that a refusal says which check fired.

Leaves to `fedfair.errors` whose fault it is: every refusal here is a `RemoteProtocolError`, because the peer
lied, erred or came too late.
"""

from __future__ import annotations

import enum

from fedfair.errors import RemoteProtocolError


class Check(enum.Enum):
    """The check that refused a message; the value is the word used in records."""

    ENCODING = "encoding"  # cut off, padded, out of range, out of order, duplicate
    POLICY = "policy"  # weaker than what this site allows
    PLAN = "plan"  # another plan than the one this site approved
    LAYOUT = "layout"  # another shape or roster than this site approved
    MEMBERSHIP = "membership"  # somebody who is not in the pinned roster, the session or the cohort
    SIGNATURE = "signature"  # does not verify under the pinned key
    OWN_ADVERT = "own-advert"  # our own keys were changed or left out on the way
    KEY = "key"  # a duplicate, low-order or malformed public key
    CONFIRM = "confirm"  # a member that did not confirm this very session
    GRAPH = "graph"  # a sparse graph that is not the one that all have drawn, or one too many
    SESSION = "session"  # another session
    ROUND_ORDER = "round-order"  # a round of the past, or too far in the future
    SESSION_EXPIRED = "session-expired"  # too many rounds under one set of keys
    STATE = "state"  # another state of the run than this site's
    REQUEST = "request"  # another sum, round or run than the one this site was asked for
    COHORT = "cohort"  # other sites than those for which this site helped to open this sum before
    THRESHOLD = "threshold"  # not the threshold that cohort and colluders require
    ATTEMPTS = "attempts"  # too many attempts about one model
    TRANSCRIPT = "transcript"  # about another round than the one under way
    OUT_OF_ORDER = "out-of-order"  # not now
    ONE_VOTE = "one-vote"  # a second set of survivors
    ONE_ANSWER = "one-answer"  # a second request to open masks
    SURVIVORS = "survivors"  # without us, not in the cohort, or too few
    VOTES = "votes"  # too few, duplicate or foreign votes
    ENVELOPE = "envelope"  # a sealed share that does not open
    REUSED_UPDATE = "reused-update"  # an update that was part of an answered attempt
    VECTOR = "vector"  # wrong length or digest of a masked vector
    TAG = "tag"  # two members derived different keys, so they saw different rounds
    COMMITMENT = "commitment"  # an opened seed that is not the one that was promised
    SHARE = "share"  # out of the field, or for somebody else
    DUPLICATE = "duplicate"  # a second, different message where one is allowed
    LATE = "late"  # after the phase was closed
    PLAUSIBILITY = "plausibility"  # a total that no honest contributions can have
    SUM = "sum"  # an opened sum that is not the sum of what the survivors added


class SecaggError(RemoteProtocolError):
    """A message was refused and nothing changed.

    Args:
        check: which check refused it.
        message: what is wrong, where, and the value that was found.
        remedy: what to do about it; empty where the message says it already.
        asked: where a site's terms refuse: the value that was asked for.
        allowed: the values that are allowed.
        liar: roster index of the member whom the fault proves to lie, whoever sent the message; 0 for none.
        accused: roster index of the member whose sealed shares are at fault as one site sees them, which proves
            nothing to others; 0 for none.
    """

    def __init__(
        self,
        check: Check,
        message: str,
        remedy: str = "",
        *,
        asked: str = "",
        allowed: str = "",
        liar: int = 0,
        accused: int = 0,
    ) -> None:
        super().__init__(message, remedy)
        self.liar = liar
        self.accused = accused
        self.check = check
        self.asked = asked
        self.allowed = allowed


def require(
    condition: bool,
    check: Check,
    message: str,
    remedy: str = "",
    *,
    asked: str = "",
    allowed: str = "",
    accused: int = 0,
) -> None:
    """Refuse unless `condition` holds; the rest as `SecaggError` takes it.

    Raises:
        SecaggError: it does not.
    """
    if not condition:
        raise SecaggError(check, message, remedy, asked=asked, allowed=allowed, accused=accused)
