"""The evidence of a run at the aggregator: the leaves of its transcript, and what every site has signed of it.

    save/leaves.bin         the leaves, one for each opened sum (`fedfair.transcript.leaf_file`)
    save/transcript.json    the roots, the newest statement of each site, and its approval (`fedfair/transcript/1`)

A statement is compared with this aggregator's own copy of the run. One that differs is told to the operator and
kept beside the others, never dropped. What cannot be honest breaks the protocol: a statement that its site has not
signed, of another run, at a place that is no checkpoint, or older than the one before. So a site makes this side
keep at most two statements of 4096 bytes, and check as many as the plan has checkpoints.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fedfair.errors import AuditError, RemoteProtocolError, StateError
from fedfair.news.run import StatementDiffers
from fedfair.run.progress import FinalStage
from fedfair.store.atomic_file import write_whole
from fedfair.transcript.checkpoints import Checkpoints
from fedfair.transcript.evidence import FILE, Place, RunEvidence, read_evidence, write_evidence
from fedfair.transcript.leaf_file import FILE as LEAVES
from fedfair.transcript.leaf_file import LeafFile, Leaves
from fedfair.transcript.statement import (
    SiteStatement,
    StatementKind,
    approval_digest,
    verify_statement,
)

if TYPE_CHECKING:
    from aggregator.admission import Admission
    from fedfair.ids import ParticipantId
    from fedfair.news.processors import Processor
    from fedfair.plan.schema import Plan
    from fedfair.run.progress import Progress
    from fedfair.run.training_run import TrainingRun

WRITTEN_AT_ONCE = 16
"""Of more statements at the end of a run than these, the file is written after every so many, and at its close."""

_REMEDY = "restart the collaborator, with the version of fedfair that the aggregator has"


class RunTranscript:
    """The transcript of one run; belongs to one event loop.

    Args:
        folder: of the run's saved files, which exists.
        run_id: the run.
        plan: its plan.
        training_run: the run, as an earlier start has left it.
        admission: which keys count, and the plan's digest.
        publish: takes what differs.

    Raises:
        AuditError: the file of an earlier start cannot be read.
    """

    def __init__(
        self,
        folder: Path,
        run_id: str,
        plan: Plan,
        training_run: TrainingRun,
        admission: Admission,
        publish: Processor,
    ) -> None:
        self._path, self._leaves = folder / FILE, LeafFile(folder / LEAVES)
        self._leaf_path = folder / LEAVES
        self._run, self._admission, self._publish = training_run, admission, publish
        self._checkpoints = Checkpoints(plan)
        self._evidence = self._continued(run_id)

    def _continued(self, run_id: str) -> RunEvidence:
        """Return what an earlier start has kept of this run, up to where the run stands; or nothing."""
        subject = self._admission.federation, self._admission.plan_digest, run_id
        if self._path.is_file():
            found = read_evidence(self._path)
            if found.same_run == subject:
                return found.until(self._size)
        return RunEvidence(*subject)

    @property
    def _size(self) -> int:
        tree = self._run.state.tree
        return 0 if tree is None else tree.size

    def approved(self, who: ParticipantId, approval: bytes) -> None:
        """Keep the approval that a site has shown; it was verified when the site was admitted."""
        self._evidence.approvals[who] = approval.decode("ascii")

    def added(self, progress: Progress) -> None:
        """Keep the leaves of a sum that was applied, and at a checkpoint where the run stands.

        Raises:
            OSError: they cannot be written.
        """
        if progress.added is None:
            return
        self._leaves.append(progress.added)
        if self._checkpoints.is_due(progress.added.leaves[-1]):
            self._evidence.places[self._size] = self._place()
            self.write()

    def _place(self) -> Place:
        state = self._run.state
        root = b"" if state.tree is None else state.tree.root
        digest = state.digest(self._admission.plan_digest)
        model = state.model
        return Place(self._size, int(state.rounds_done), digest, model.vector_sha256, model.threshold, root)

    def witnessed(self, who: ParticipantId, raw: bytes) -> None:
        """Take what a site has signed at a checkpoint.

        Raises:
            RemoteProtocolError: no honest site says it.
        """
        statement = self._read(who, raw)
        before = self._evidence.statements.get(who) or self._evidence.differing.get(who)
        if before == raw.decode("ascii"):
            return  # Said again after a lost connection.
        newest = self._evidence.newest(who)
        if statement.kind is not StatementKind.CHECKPOINT or statement.leaves <= newest:
            raise RemoteProtocolError(
                f"{who} states {statement.kind.value} of {statement.leaves} leaves after one of {newest}", _REMEDY
            )
        if statement.leaves > self._size or not self._is_checkpoint(statement.leaves):
            raise RemoteProtocolError(
                f"{who} states {statement.leaves} leaves, where the run has no checkpoint", _REMEDY
            )
        self._keep(who, raw, statement)

    def ended(self, who: ParticipantId, raw: bytes) -> None:
        """Take a site's last word of the run; where it is no statement, the operator learns why.

        Raises:
            OSError: it cannot be written.
        """
        if not raw:
            return
        try:
            statement = self._read(who, raw)
        except RemoteProtocolError as fault:
            self._publish(StatementDiffers(who, fault.message))
            return
        if statement.leaves >= self._evidence.newest(who):
            self._keep(who, raw, statement)
            if (
                len(self._evidence.statements) <= WRITTEN_AT_ONCE
                or not len(self._evidence.statements) % WRITTEN_AT_ONCE
            ):
                self.write()

    def _read(self, who: ParticipantId, raw: bytes) -> SiteStatement:
        try:
            statement = verify_statement(raw, self._admission.roster[who])
        except AuditError as fault:
            raise RemoteProtocolError(f"{who}: {fault.message}", _REMEDY) from fault
        if statement.participant != who or statement.same_run != self._evidence.same_run:
            raise RemoteProtocolError(f"{who} states something of another run, or in another name", _REMEDY)
        return statement

    def _is_checkpoint(self, size: int) -> bool:
        if size in self._evidence.places:
            return True
        try:
            return self._checkpoints.is_due(Leaves(self._leaf_path).leaf(size - 1))
        except (AuditError, ValueError):
            return False

    def _keep(self, who: ParticipantId, raw: bytes, statement: SiteStatement) -> None:
        fault = self._difference(who, statement)
        kept = self._evidence.differing if fault else self._evidence.statements
        kept[who] = raw.decode("ascii")
        if fault:
            self._publish(StatementDiffers(who, fault))

    def _difference(self, who: ParticipantId, statement: SiteStatement) -> str:
        """Return in which way a statement differs from this side's copy of the run; empty where it does not."""
        places, final = self._evidence.places, statement.kind is StatementKind.FINAL
        if statement.leaves > self._size:
            return f"it states {statement.leaves} leaves, this side has {self._size}"
        own = self._place() if statement.leaves == self._size and (final or self._size not in places) else None
        own = own or places.get(statement.leaves)
        if final and (statement.leaves != self._size or self._run.state.stage is not FinalStage.FINISHED):
            return f"it states the end after {statement.leaves} of {self._size} leaves"
        if own is None:
            try:
                root = Leaves(self._leaf_path).hashes.root(statement.leaves)
            except (AuditError, ValueError):
                return f"this side has no leaves from which the root of {statement.leaves} follows"
            own = Place(*statement.same_state[:-1], root)
        if statement.same_state != own.same_state:
            return f"it states another root, state or model after {statement.leaves} leaves"
        approval = self._evidence.approvals.get(who, "").encode("ascii")
        if statement.approval != approval_digest(approval):
            return "it names another approval than the one that the site has shown"
        return ""

    def write(self) -> None:
        """Write `transcript.json` in one step.

        Raises:
            OSError: it cannot be written.
        """
        if self._size:
            write_whole(self._path, write_evidence(self._evidence, self._place()))

    def close(self) -> None:
        """Write what there is, and wait until it is on the disk.

        Raises:
            StateError: they cannot be written.
        """
        try:
            self.write()
            self._leaves.sync()
        except OSError as error:
            raise StateError(
                f"{self._path} cannot be written: {error.strerror}",
                "make room on the disk and start the aggregator again: the sites sign the end once more",
            ) from error
