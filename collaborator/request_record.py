"""The record of what this site has answered under one plan: on the disk before an answer is computed.

Carries the rules of `allowance` and `queries`: they read rows of one file, and what both of them note of one
question is written in one transaction, with one wait for the disk. A question that is refused leaves no row.
"""

from __future__ import annotations

from pathlib import Path
from threading import Lock

from collaborator.allowance import Allowance
from collaborator.inbox import Question
from collaborator.queries import AnsweredQueries
from collaborator.reluctance import Reluctance
from collaborator.table_file import Content, TableFile
from collaborator.worker import Granted
from fedfair.plan.schema import Plan
from fedfair.plan.site import SitePolicy

ANSWERED = Content(
    "this site's record of what it has answered",
    "copy it back from a backup; without it a site cannot know what it has answered",
)


class RequestRecord:
    """The record of one site under one plan, open; call `close` at the end.

    Args:
        path: its file; made if there is none.
        plan: the plan.
        policy: the site's.
        name: the site's, for messages.

    Raises:
        FedfairError: the file is damaged, or another process has it.
    """

    def __init__(self, path: Path, plan: Plan, policy: SitePolicy, name: str) -> None:
        self._table = TableFile(path, ANSWERED)
        self._allowance = Allowance(self._table, plan, policy, name)
        self._queries = AnsweredQueries(self._table)
        # Questions come from the worker's thread, the end of the process from another.
        self._lock = Lock()
        self._closed = False

    def admit(self, question: Question) -> Reluctance | Granted:
        """Return why a question must not be answered; otherwise it is on the record from now on.

        Raises:
            FedfairError: the record cannot be read or written.
        """
        with self._lock:
            if self._closed:
                return Reluctance("this site is leaving, and answers nothing more")
            admitted, asked = self._allowance.judge(question), self._queries.judge(question.start)
            if isinstance(admitted, Reluctance):
                return admitted
            if isinstance(asked, Reluctance):
                return asked
            rows = admitted.rows + asked
            if rows:
                self._table.write(rows)
            return Granted(admitted.attempt)

    def close(self) -> None:
        """Let the file go, after the question that is being judged."""
        with self._lock:
            self._closed = True
            self._table.close()
