"""This site's history over all plans: over which sites it has helped to open what, on the disk before an answer.

    history/<name>.sqlite    beside `state/`; `history` of `collaborator.yaml` names another place

One file for all plans of a site. Each plan's process has it for the time of one request, so that two plans can run
at once. Which request is refused is decided by `policy.earlier_sums`.

What it has answered under one plan is in another file of that plan, on the disk before an answer is computed. It
carries the rules of `policy.decision`: they read rows of one file, and what they note of one request is written in
one transaction, with one wait for the disk. A request that is refused leaves no row.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from threading import Lock

from fedfair.aggregation.round_subject import scaling_digest
from fedfair.ids import ParticipantId
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan
from fedfair.policy.aggregation_request import AggregationRequest
from fedfair.policy.all_plans import AllPlans, AnsweredTotals
from fedfair.policy.decision import SiteRules
from fedfair.policy.earlier_sums import EarlierSums
from fedfair.policy.refusal import Refusal
from fedfair.policy.request_limits import state_key
from fedfair.policy.site_config import SiteConfig, SitePolicy
from fedfair.policy.terms import Term
from fedfair.run.state import RunState
from fedfair.statistics.table import Purpose
from fedfair.store.table_file import Content, TableFile

HISTORY = Content(
    "this site's history over all plans",
    "copy it back from a backup; without it a site cannot know what it has helped to open, and over which sites",
)
PATIENCE_SECONDS = 60.0
"""How long to wait for the request of another plan."""


def history_file(home: Path, config: SiteConfig, participant: ParticipantId) -> Path:
    """Return where a site's history is.

    Args:
        home: the folder of its `collaborator.yaml`.
        config: that file.
        participant: the site.
    """
    return Path(config.history or home / "history" / f"{participant}.sqlite")


class SiteHistory:
    """The history of one site, under one plan.

    Args:
        path: its file; made with the first row.
        plan: the plan.
        plan_digest: of it, 32 bytes.
        schema: of its features.
        policy: the site's.
        name: the site's, for messages.
        records: the name of its data set, which is nobody else's; empty where it has none.
    """

    def __init__(
        self,
        path: Path,
        plan: Plan,
        plan_digest: bytes,
        schema: FeatureSchema,
        policy: SitePolicy,
        name: str,
        records: str = "",
    ) -> None:
        self._path = path
        self._about = plan, plan_digest, schema, policy, name
        self._in_all = AllPlans(plan, plan_digest, policy.all_plans, name, records)
        self._counted: bytes = b""

    def admit(self, request: AggregationRequest) -> Refusal | None:
        """Return why a request must not be answered; otherwise it is in the history from now on.

        Raises:
            FedfairError: the history cannot be read or written.
        """
        member, is_round = self._in_all.member(request), request.purpose.statistic.is_round
        if is_round and member == self._counted:
            # Most rounds are of a block that this process has counted: they cost no look at the disk.
            return None
        with self._table() as table:
            counted = self._in_all.decide(request, table)
            if isinstance(counted, Refusal):
                return counted
            decided = () if is_round else EarlierSums(table, *self._about).decide(request)
            if isinstance(decided, Refusal):
                return decided
            if counted or decided:
                table.write((*counted, *decided))
        self._counted = member if is_round else self._counted
        return None

    def totals(self) -> AnsweredTotals:
        """Return what this site has answered so far about these records, over all plans.

        Raises:
            FedfairError: the history cannot be read.
        """
        if not self._path.exists():
            return AnsweredTotals(0, 0, 0)
        with self._table() as table:
            return self._in_all.totals(table)

    def opened(self, purpose: Purpose, state: RunState, members: tuple[str, ...]) -> None:
        """Remember over which sites a sum was opened in the end, which may be fewer than were asked.

        Args:
            purpose: of the sum.
            state: that it was about.
            members: the names of those who took part.

        Raises:
            FedfairError: the history cannot be read or written.
        """
        if purpose.statistic.is_round:
            return
        with self._table() as table:
            rules = EarlierSums(table, *self._about)
            about = rules.subjects(purpose, state.model.vector_sha256, scaling_digest(state.scaling))
            rows = rules.opened(about, members)
            if rows:
                table.write(rows)

    def term(self) -> Term | None:
        """Return the broken term of the policy about what the plan sums before round 1; None where it is kept.

        Raises:
            FedfairError: the history cannot be read.
        """
        if not self._path.exists():
            return None
        with self._table() as table:
            return EarlierSums(table, *self._about).term()

    def _table(self) -> closing[TableFile]:
        return closing(TableFile(self._path, HISTORY, PATIENCE_SECONDS))


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
