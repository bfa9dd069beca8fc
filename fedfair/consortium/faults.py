"""The named checks of the members, acts and record of a consortium."""

from __future__ import annotations

import enum

from fedfair.errors import RefusedActError


class RecordCheck(enum.Enum):
    """The check that refuses something; the value stands in front of its sentence."""

    FORM = "form"
    """not the one spelling of a file, an act or an entry"""
    FEDERATION = "federation"
    """of another federation"""
    MEMBERS = "members"
    """a list of members that does not follow the one before"""
    AUTHOR = "author"
    """by somebody who is no member"""
    SIGNATURE = "signature"
    """not signed by whom it names"""
    ROLE = "role"
    """the role of the author does not allow it"""
    REPLAY = "replay"
    """stands in the record already"""
    STUDY = "study"
    """a name of a study that is taken, unknown or of another plan"""
    PHASE = "phase"
    """too late, or too early, in the life of a study"""
    PAYLOAD = "payload"
    """what an act carries is not what it says"""
    NUMBER = "number"
    """an entry is left out, or comes twice"""
    CHAIN = "chain"
    """an entry does not follow the one before"""
    PAST = "past"
    """another past than the one that was known"""
    LEFT_OUT = "left out"
    """an act that was acknowledged is not in the record"""
    ARCHIVE = "archive"
    """an archive that is not what its act says"""
    LIMIT = "limit"
    """more than a member may ask for"""


class ConsortiumError(RefusedActError):
    """A list of members, an act or a record is refused by a named check.

    Args:
        check: which one.
        message: what is wrong.
        remedy: what to do about it.
    """

    def __init__(self, check: RecordCheck, message: str, remedy: str = "") -> None:
        super().__init__(f"{message} (check: {check.value})", remedy)
        self.check = check
