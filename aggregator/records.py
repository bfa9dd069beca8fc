"""Every file that a run leaves behind, in the folder it was started in.

    save/init.safetensors, last, best   the models, for anybody to load; last is the output model at the end
    save/trained.safetensors            what training ended with, whichever model is the output
    save/journal.sqlite                 what a restart continues from (`journal.py`)
    save/journal.vectors/               its long vectors
    received/<name>.jsonl               what each collaborator sent (`received_log.py`)
    logs/aggregator_metrics.jsonl       one line per sum
    logs/aggregator_notes.log           one line for every notice to the operator
    logs/aggregator_departures.jsonl    one line for every collaborator that left, or did not come, in words
    logs/aggregator_told.jsonl          one line for every collaborator that was notified that the run is over
    logs/aggregator_refusals.jsonl      one line for every sum that a collaborator took no part in, in its words
    save/evaluation.json                the sums behind the result, by the contract `fedfair/evaluation/1`
    save/evaluation.bin                 the opened sum itself, of which the transcript has a leaf
    result.json                         the result, by the contract `fedfair/result/1`

Every line of the four `.jsonl` logs has `time` (ISO 8601, UTC, milliseconds) and the `run_id` of its run.

Metrics, notes, departures and refusals begin a new file in time and forget the oldest one: 512 MiB of metrics,
more than a year of a round a minute has, and 64 MiB of each of the others. The mirror begins new files too and
forgets nothing; how much of it one stream can cause is `connection.py`'s business.

Decides when each is due; what is in them is decided by the training run and by `results.writing`.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from aggregator.journal import Journal, JournalEntry
from fedfair.aggregation.cvar_bounds import SplitSummary
from fedfair.aggregation.evaluation_file import OPENED_SUFFIX, EvaluationRecord, to_text
from fedfair.aggregation.model_layout import Layout
from fedfair.aggregation.requests import GlobalModel, SumRequest
from fedfair.ids import ParticipantId
from fedfair.process.log_lines import log_line
from fedfair.results.costs import SumCost
from fedfair.results.document import ResultDocument, UnfinishedResult
from fedfair.results.document import to_text as result_text
from fedfair.results.parts import Departure, LateSite
from fedfair.rounds.events import CaughtUp, CheckpointKind, Clipping, Departed, LeftBehind, UnfinishedSum
from fedfair.rounds.slowness.stragglers import NOT_TIMED, SumPace
from fedfair.rounds.state_steps import LastOpened
from fedfair.run.packed_state import pack_state
from fedfair.run.reference_file import FILE as REFERENCES
from fedfair.run.reference_file import KeptReferences, write_references
from fedfair.run.saved_model import ModelOrigin, RunModel, save_model, saved_of
from fedfair.run.snapshot import known_sha256
from fedfair.run.state import RunState
from fedfair.run.training_run import Progress, TrainingRun
from fedfair.store.atomic_file import replace_file, write_whole
from fedfair.store.line_end import is_cut
from fedfair.store.rotated_log import MAX_METRICS_BYTES, MAX_METRICS_FILES, RotatedLog
from fedfair.store.spilled import forget_pages, spilled, spilled_array

SMALL_MODEL_BYTES = 1 << 20
"""Up to this size every sum is recorded: it takes a fraction of a millisecond."""

LARGE_MODEL_SECONDS = 10.0
"""A larger model is recorded at most this often between two evaluations."""


MODEL_OF: Mapping[CheckpointKind, RunModel] = {
    CheckpointKind.INITIAL: "initial",
    CheckpointKind.LAST: "present",
    CheckpointKind.BEST: "best",
    CheckpointKind.TRAINED: "trained",
}
"""The model of each file."""


@dataclass(slots=True)
class SumFigures:
    """The cost of one sum so far.

    Attributes:
        started: on the monotonic clock, in seconds.
        bytes_in: bytes of uploads.
        bytes_out: bytes of broadcast vectors.
        late: answers that came in its time and after enough others, mostly to the sum before; no fault.
    """

    started: float
    bytes_in: int = 0
    bytes_out: int = 0
    late: int = 0


@dataclass(frozen=True, slots=True)
class RunPaths:
    """The paths of a run's files.

    Attributes:
        folder: the folder of the run.
    """

    folder: Path

    @property
    def save(self) -> Path:
        """The folder of models and journal."""
        return self.folder / "save"

    @property
    def journal(self) -> Path:
        """The journal."""
        return self.save / "journal.sqlite"

    @property
    def received(self) -> Path:
        """The folder of the mirror."""
        return self.folder / "received"

    @property
    def metrics(self) -> Path:
        """The metrics."""
        return self.folder / "logs" / "aggregator_metrics.jsonl"

    @property
    def notes(self) -> Path:
        """The notes."""
        return self.folder / "logs" / "aggregator_notes.log"

    @property
    def departures(self) -> Path:
        """Who left."""
        return self.folder / "logs" / "aggregator_departures.jsonl"

    @property
    def refusals(self) -> Path:
        """Who took no part in which sum."""
        return self.folder / "logs" / "aggregator_refusals.jsonl"

    @property
    def notified(self) -> Path:
        """Who knows that the run is over."""
        return self.folder / "logs" / "aggregator_told.jsonl"

    @property
    def result(self) -> Path:
        """The result."""
        return self.folder / "result.json"

    @property
    def evaluation(self) -> Path:
        """The sums of the last evaluation."""
        return self.save / "evaluation.json"

    def model(self, kind: CheckpointKind) -> Path:
        """The file of one of the models."""
        return self.save / f"{kind.value}.safetensors"

    def left_behind(self) -> list[Path]:
        """Return what a run has left here, beside its journal; a file without content is nothing."""
        models = [self.model(kind) for kind in CheckpointKind]
        logs = [self.metrics, self.departures, self.refusals]
        found = [*models, self.evaluation, self.result, *logs, *sorted(self.received.glob("*.jsonl"))]
        return [path for path in found if path.is_file() and path.stat().st_size]


def _models_of(training_run: TrainingRun) -> list[GlobalModel]:
    states = (training_run.initial, training_run.state)
    models = [model for state in states for model in (state.model, state.best, state.last) if model is not None]
    return list({id(model): model for model in models}.values())


def _forget_pages_of(training_run: TrainingRun, opened: LastOpened | None) -> None:
    """Give back the memory of what was read of spilled vectors."""
    for model in _models_of(training_run):
        forget_pages(model.vector)
    if opened is not None:
        forget_pages(opened.vector)


class RunRecords:
    """The files of one run; the methods that take long are called from one thread at a time.

    Args:
        paths: where they are.
        layout: of the model.
        journal: of this run, open.
        origin: what every model file says of the plan.
        worst_group_size: the group size of the objective, whose risk the metrics hold.
        every_sum: whether the journal is written after every sum: a sum that is forgotten and repeated would cost
            privacy that nobody counts, or be refused; or take sites further back than what they remember.

    Attributes:
        run_id: names the run, the same after every restart.
        received: the folder of what each collaborator sent.
        spill_folder: where there is room for vectors that are rarely read.
        is_small: whether the model takes next to no time to add up and to write.
    """

    def __init__(
        self,
        paths: RunPaths,
        layout: Layout,
        journal: Journal,
        origin: ModelOrigin,
        worst_group_size: float,
        *,
        every_sum: bool = False,
    ) -> None:
        self.run_id, self._journal = journal.run_id, journal
        self.received, self.spill_folder, self._paths = paths.received, paths.save, paths
        self._layout, self._origin, self._worst_group_size = layout, origin, worst_group_size
        self._every_sum = every_sum
        self.is_small = layout.dimension * layout.dtype.itemsize <= SMALL_MODEL_BYTES
        recorded = journal.latest()
        self._seconds_before = 0.0 if recorded is None else recorded.seconds
        self._started: float | None = None
        self._entered = time.monotonic()
        self._unrecorded: list[SumCost] = []
        mode = "w" if recorded is None else "a"
        cut = is_cut(paths.notified)
        self._notified = paths.notified.open(mode, buffering=1, encoding="utf-8")
        if cut and recorded is not None:
            self._notified.write("\n")
        self._lines = RotatedLog(paths.metrics, max_total_bytes=MAX_METRICS_BYTES, kept=MAX_METRICS_FILES)
        logs = (RotatedLog(path) for path in (paths.notes, paths.departures, paths.refusals))
        self._notes, self._departures, self._refusals = logs
        for log in (self._lines, self._notes, self._departures, self._refusals):
            log.begin(anew=recorded is None)

    @property
    def seconds(self) -> float:
        """How long this run has worked, over all its starts; waiting for the first collaborators is no work."""
        return self._seconds_before + (0.0 if self._started is None else time.monotonic() - self._started)

    def rounds_at_risk(self, rounds_done: int) -> int:
        """Return how many rounds a crash can have cost this journal, of which so many are in it."""
        if self.is_small or self._every_sum:
            return 1
        seconds_a_round = self._seconds_before / max(1, rounds_done)
        # Twice what lies between two entries: rounds are not all equally long.
        return 1 + math.ceil(2 * LARGE_MODEL_SECONDS / max(seconds_a_round, 1e-3))

    def begin_work(self) -> None:
        """Note that a sum begins."""
        self._started = time.monotonic() if self._started is None else self._started

    def is_entry_due(self, progress: Progress) -> bool:
        """Return whether the journal is to be written after this sum."""
        overdue = time.monotonic() - self._entered > LARGE_MODEL_SECONDS
        changed = progress.evaluation is not None or not progress.purpose.statistic.is_about_model
        return self.is_small or self._every_sum or overdue or changed

    def write(
        self,
        training_run: TrainingRun,
        kinds: Collection[CheckpointKind],
        *,
        journal: bool,
        unfinished: UnfinishedSum | None = None,
        opened: LastOpened | None = None,
    ) -> None:
        """Write model files and, if asked for, the journal; the training run may not change meanwhile.

        Args:
            training_run: whose state is written.
            kinds: which model files.
            journal: whether the journal is written.
            unfinished: the sum that is asked for next, if it can be opened later.
            opened: the sum that was opened last, for sites that have missed it.
        """
        for kind in kinds:
            saved = saved_of(training_run, MODEL_OF[kind], self._origin.plan_digest)
            save_model(self._paths.model(kind), self._layout, saved, self._origin)
        if journal:
            costs = tuple(self._unrecorded)
            known = {name: digest.hex() for name, digest in known_sha256(training_run.state.facts).items()}
            snapshot, history = training_run.brief_snapshot(), training_run.history
            self._journal.record(JournalEntry(snapshot, self.seconds, costs, opened, history, known))
            self._unrecorded = self._unrecorded[len(costs) :]
            self._entered = time.monotonic()
        if unfinished is not None:
            self._journal.keep(unfinished)
        _forget_pages_of(training_run, opened)

    def spill(self, training_run: TrainingRun) -> None:
        """Move the models of a run from memory to a file, where they are large; their values stay.

        A run whose sums are masked reads its model once a round, and the others hardly ever.

        Raises:
            OSError: there is no room.
        """
        if self.is_small:
            return
        for model in _models_of(training_run):
            model.move_to(spilled_array(model.vector, self.spill_folder))
        _forget_pages_of(training_run, None)

    def packed(self, state: RunState) -> bytes | memoryview:
        """Return the bytes of a state, for sites that are not in step; of a large model in a file.

        Raises:
            OSError: there is no room.
        """
        parts = pack_state(state)
        return b"".join(parts) if self.is_small else spilled(parts, self.spill_folder)

    def count_sum(self, progress: Progress, figures: SumFigures, now: float) -> SumCost:
        """Count and return what a sum cost that closed; the next entry of the journal holds it with its total."""
        seconds, moved = round(now - figures.started, 6), (figures.bytes_in, figures.bytes_out)
        cost = SumCost(progress.purpose, int(progress.round), seconds, progress.contributors, *moved)
        self._unrecorded.append(cost)
        return cost

    def append_line(
        self,
        progress: Progress,
        figures: SumFigures,
        now: float,
        clipping: Clipping | None = None,
        pace: SumPace = NOT_TIMED,
    ) -> None:
        """Append one line of metrics for a sum that closed."""
        line: dict[str, object] = {
            "round": progress.round,
            "purpose": progress.purpose.value,
            "seconds": round(now - figures.started, 6),
            "contributors": progress.contributors,
            "bytes_in": figures.bytes_in,
            "bytes_out": figures.bytes_out,
            "late_answers": figures.late,
            "replaced_values": progress.replaced,
            "sites_with_replaced_values": progress.replacing,
        }
        if pace.median is not None and pace.slowest is not None:
            line["answer_seconds_median"] = round(pace.median, 3)
            line["answer_seconds_slowest"] = round(pace.slowest[1], 3)
            line["slowest"] = pace.slowest[0]
        if pace.left_behind:
            line["left_behind"] = list(pace.left_behind)
        if progress.purpose.statistic.is_about_model:
            # Before the losses are known there is no threshold yet, only what stands in its place.
            line["threshold"] = progress.threshold
        if clipping is not None:
            line |= {"clip": clipping.clip, "clipped": clipping.clipped}
        if progress.evaluation is not None:
            line |= {name: self._split_figures(split) for name, split in progress.evaluation.splits.items()}
        self._lines.append(self._stamped(line))

    def append_note(self, line: str) -> None:
        """Append a note to the operator."""
        self._notes.append(line)

    def append_departure(self, departed: Departed) -> None:
        """Append who left, when and why; the journal keeps it for the result."""
        self._journal.rows.add_departure(departed)
        line = {"collaborator": departed.participant, "round": departed.round, "reason": departed.reason}
        self._departures.append(self._stamped(line))

    def append_refusal(self, who: ParticipantId, request: SumRequest, words: str) -> None:
        """Append who took no part in which sum, and why."""
        line = {
            "collaborator": who,
            "round": request.round,
            "purpose": request.purpose.value,
            "attempt": request.attempt,
            "reason": words,
        }
        self._refusals.append(self._stamped(line))

    def append_notified(self, who: ParticipantId) -> None:
        """Append the name of a collaborator that knows that the run is over."""
        self._notified.write(self._stamped({"collaborator": who}) + "\n")

    def informed(self) -> set[str]:
        """Return who needs no word that the run is over: those who were notified, and those who left for good."""
        written = self._paths.notified.read_text(encoding="utf-8").splitlines()
        lines = [json.loads(line) for line in written if line.endswith("}")]
        left = [departed.participant for departed in self._journal.rows.departures()]
        return {str(name) for name in (*(line["collaborator"] for line in lines), *left)}

    def departures(self) -> tuple[Departure, ...]:
        """Return who left this run, over all its starts, in order, as `fedfair/result/1` says it."""
        return tuple(
            Departure(collaborator=departed.participant, round=departed.round, reason=departed.reason)
            for departed in self._journal.rows.departures()
        )

    def note_late(self, late: LeftBehind | CaughtUp) -> None:
        """Keep who was too slow, and how long it took, for the result."""
        self._journal.rows.add_lateness(late.participant, late.seconds, times=isinstance(late, LeftBehind))

    def late_sites(self) -> tuple[LateSite, ...]:
        """Return whom sums continued without, over all starts, as `fedfair/result/1` says it."""
        return tuple(
            LateSite(collaborator=who, times=times, longest_seconds=round(seconds, 3))
            for who, times, seconds in self._journal.rows.late_sites()
        )

    def costs(self) -> list[SumCost]:
        """Return what every sum of this run cost, over all its starts; one that is repeated counts once."""
        return [*self._journal.rows.costs(), *self._unrecorded]

    def _stamped(self, fields: Mapping[str, object]) -> str:
        return log_line(datetime.now(UTC), self.run_id, fields)

    def _split_figures(self, split: SplitSummary) -> dict[str, float]:
        told = {"mean": split.mean, "worst": split.by_group_size[self._worst_group_size].worst}
        return told if split.accuracy is None else told | {"accuracy": split.accuracy}

    def write_result(self, result: ResultDocument | UnfinishedResult) -> None:
        """Write `result.json` in one step: a reader sees the older file or the new one."""
        write_whole(self._paths.result, result_text(result))

    def write_evaluation(self, record: EvaluationRecord, opened: bytes, kept: KeptReferences | None) -> None:
        """Write `save/evaluation.json`, the opened sum that it is from, and references where there are any."""
        write_whole(self._paths.evaluation, to_text(record))
        replace_file(self._paths.evaluation.with_suffix(OPENED_SUFFIX), [opened])
        if kept is not None:
            write_references(self._paths.save / REFERENCES, kept)

    def close(self) -> None:
        """Close every file."""
        self._lines.close()
        self._notes.close()
        self._departures.close()
        self._refusals.close()
        self._notified.close()
        self._journal.close()
