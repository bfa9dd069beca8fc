"""The record of what this site has answered under one plan: on the disk before an answer is computed.

Carries the rules of `policy.decision`: they read rows of one file, and what they note of one request is written in
one transaction, with one wait for the disk. A request that is refused leaves no row.
"""

from __future__ import annotations

from pathlib import Path
from threading import Lock

from fedfair.policy.aggregation_request import AggregationRequest
from fedfair.policy.decision import SiteRules
from fedfair.policy.refusal import Refusal
from fedfair.policy.request_limits import state_key
from fedfair.store.table_file import Content, TableFile

ANSWERED = Content(
    "this site's record of what it has answered",
    "copy it back from a backup; without it a site cannot know what it has answered",
)


class RequestRecord:
    """The record of one site under one plan, open; call `close` at the end.

    Args:
        path: its file; made if there is none.
        rules: what decides.

    Raises:
        FedfairError: the file is damaged, or another process has it.
    """

    def __init__(self, path: Path, rules: SiteRules) -> None:
        self._table = TableFile(path, ANSWERED)
        self._rules = rules
        # Questions come from the worker's thread, the end of the process from another.
        self._lock = Lock()
        self._closed = False

    def admit(self, request: AggregationRequest) -> Refusal | int:
        """Return why a request must not be answered; otherwise it is on the record from now on.

        Raises:
            FedfairError: the record cannot be read or written.
        """
        with self._lock:
            if self._closed:
                return Refusal("this site is withdrawing and answers no further request")
            decided = self._rules.decide(request, self._table)
            if isinstance(decided, Refusal):
                return decided
            if decided.rows:
                self._table.write(decided.rows)
            return decided.attempt

    def has_answered(self, state: bytes) -> bool:
        """Return whether this site has answered a request about a state of the run.

        Args:
            state: its digest, 32 bytes.
        """
        with self._lock:
            return not self._closed and self._table.get(state_key(state.hex())) is not None

    def close(self) -> None:
        """Let the file go, after the request that is being checked."""
        with self._lock:
            self._closed = True
            self._table.close()
