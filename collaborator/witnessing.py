"""What this site signs of its own copy of a run, and keeps: the leaves of the transcript and its statements.

    runs/<name>/<run>/leaves.bin          the leaves of the sums that this site has applied
    runs/<name>/<run>/statements.jsonl    what it has signed: at checkpoints, and at the end

A site signs what its own copy says, nothing that it was told. Where a file cannot be written, the operator is
told, and the run continues: the statement itself goes to the aggregator's evidence.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fedfair.news.site import ReleaseWithheld, RunFileUnwritten
from fedfair.run.progress import FinalStage
from fedfair.store.atomic_file import write_whole
from fedfair.transcript.checkpoints import Checkpoints
from fedfair.transcript.leaf_file import FILE as LEAVES
from fedfair.transcript.leaf_file import LeafFile
from fedfair.transcript.statement import (
    NOT_ASKED,
    ReleaseVerdict,
    SiteStatement,
    StatementKind,
    approval_digest,
    parse_statement,
    sign_statement,
)

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from fedfair.ids import FederationName, ParticipantId
    from fedfair.news.event import News
    from fedfair.plan.schema import Plan
    from fedfair.run.progress import Progress
    from fedfair.run.replica import RunReplica
    from fedfair.run.state import RunState

STATEMENTS = "statements.jsonl"


@dataclass(frozen=True, slots=True)
class Signatory:
    """In whose name statements are made.

    Attributes:
        federation: of the plan.
        participant: the site.
        plan_digest: 32 bytes.
        approval: the site's signed approval of the plan.
        signing_key: the key that the plan's roster pins for it.
    """

    federation: FederationName
    participant: ParticipantId
    plan_digest: bytes
    approval: bytes
    signing_key: Ed25519PrivateKey = field(repr=False)

    def statement(self, replica: RunReplica, kind: StatementKind, verdict: ReleaseVerdict = NOT_ASKED) -> bytes:
        """Return the signed statement of a copy of a run that has applied at least one sum."""
        state = replica.state
        leaves, root = (0, b"") if state.tree is None else (state.tree.size, state.tree.root)
        stated = SiteStatement(
            self.federation,
            self.participant,
            self.plan_digest,
            replica.run_id,
            kind,
            int(state.rounds_done),
            replica.digest,
            state.model.vector_sha256,
            state.model.threshold,
            leaves,
            root,
            approval_digest(self.approval),
            verdict,
        )
        return sign_statement(stated, self.signing_key)


def not_asked(_: RunState) -> ReleaseVerdict:
    """Return the word of a site that no plan and no policy asks about the release."""
    return NOT_ASKED


class SiteWitness:
    """The statements of one site; called in the worker's thread, but for `unsent_of`.

    Args:
        signatory: in whose name.
        plan: of the runs.
        runs: the folder of this site's own copies of runs.
        verdict: the site's word on the release, once a run is at its end.

    Attributes:
        last: the newest statement; empty before the first.
    """

    def __init__(
        self,
        signatory: Signatory,
        plan: Plan,
        runs: Path,
        verdict: Callable[[RunState], ReleaseVerdict] = not_asked,
    ) -> None:
        self._signatory, self._runs, self._verdict = signatory, runs, verdict
        self._checkpoints = Checkpoints(plan)
        self._leaves: tuple[str, LeafFile] | None = None
        self._notices: deque[News] = deque()
        self._unsent: deque[bytes] = deque()
        self.last = b""

    def applied(self, replica: RunReplica, progress: Progress) -> None:
        """Keep the leaves of an opened sum, and sign a checkpoint where one is due.

        Args:
            replica: the copy of the run, after the sum.
            progress: the outcome of the sum.
        """
        if progress.added is None:
            return
        folder = self._runs / replica.run_id
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file_of(replica.run_id).append(progress.added)
        except OSError as error:
            self._notices.append(RunFileUnwritten(folder / LEAVES, error.strerror or str(error)))
        is_over = replica.state.stage is FinalStage.FINISHED
        if self._checkpoints.is_due(progress.added.leaves[-1]) and not is_over:
            self._sign(replica, StatementKind.CHECKPOINT)
            self._unsent.append(self.last)

    def unsent_of(self, state: RunState) -> deque[bytes]:
        """Return the checkpoints that were not sent yet, the oldest first; whoever sends one takes it out.

        Args:
            state: of the copy of the run. Where it was put back, what was signed after it is not said any more.
        """
        size = 0 if state.tree is None else state.tree.size
        while self._unsent and parse_statement(self._unsent[-1]).leaves > size:
            self._unsent.pop()
        return self._unsent

    def ended(self, replica: RunReplica) -> None:
        """Sign where the copy stands when the run is over: the end, or as far as this site has it."""
        if replica.state.tree is None:
            return
        is_over = replica.state.stage is FinalStage.FINISHED
        self._sign(replica, StatementKind.FINAL if is_over else StatementKind.CHECKPOINT)
        try:
            self._file_of(replica.run_id).sync()
        except OSError as error:
            self._notices.append(
                RunFileUnwritten(self._runs / replica.run_id / LEAVES, error.strerror or str(error))
            )

    def _sign(self, replica: RunReplica, kind: StatementKind) -> None:
        verdict = self._verdict(replica.state) if kind is StatementKind.FINAL else NOT_ASKED
        if verdict.reasons:
            self._notices.append(ReleaseWithheld(", ".join(reason.value for reason in verdict.reasons)))
        self.last = self._signatory.statement(replica, kind, verdict)
        path = self._runs / replica.run_id / STATEMENTS
        try:
            earlier = path.read_text(encoding="ascii") if path.is_file() else ""
            line = self.last.decode("ascii") + "\n"
            if not earlier.endswith(line):
                path.parent.mkdir(parents=True, exist_ok=True)
                write_whole(path, earlier + line)
        except OSError as error:
            self._notices.append(RunFileUnwritten(path, error.strerror or str(error)))

    def _file_of(self, run_id: str) -> LeafFile:
        if self._leaves is None or self._leaves[0] != run_id:
            self._leaves = run_id, LeafFile(self._runs / run_id / LEAVES)
        return self._leaves[1]

    def take_notices(self) -> list[News]:
        """Return what there is to say to the operator, once."""
        taken = list(self._notices)
        self._notices.clear()
        return taken
