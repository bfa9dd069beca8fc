"""The refusal of a request by this site: a term, what was asked, what is allowed, and words for people."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why this site adds nothing to a sum.

    Attributes:
        reason: in words, for this site's own log and terminal; it never leaves the site.
        term: the key of the site's policy, or the check of secure aggregation, that refuses; empty where neither
            does.
        asked: the value that was asked for; for this site's log.
        allowed: the value that is allowed; for this site's log.
        leaving: whether this site leaves the federation with this answer.
        accused: place in the roster of the member whose sealed shares this site cannot open; 0 for none.
    """

    reason: str
    term: str = ""
    asked: str = ""
    allowed: str = ""
    leaving: bool = False
    accused: int = 0
