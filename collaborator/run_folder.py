"""This site's own copy of the outcome of a run: the models, and the result with its history.

    runs/<name>/<run>/save/last.safetensors    the model of the latest evaluation; at the end, the output model
    runs/<name>/<run>/save/best.safetensors    the model of the best evaluation so far
    runs/<name>/<run>/save/trained.safetensors what training ended with, whichever model is the output
    runs/<name>/<run>/save/references.safetensors  those of measure: excess, with a note of this site's records
    runs/<name>/<run>/result.json              the result so far, by the contract `fedfair/result/1`

The folder `runs` lies beside `collaborator.yaml`; <run> is the run's id, so that no run replaces the files of
another. The result grows with the history: of a long run it is written when a hundredth of the evaluations are
new, so that a round costs the same late as early. Decides when each file is due and what happens where one cannot
be written: the operator is notified, the older file stays whole, the run continues, and the next evaluation tries
again. The words in a model's file are `saved_model.py`'s, the result is that of `results`. What only the
aggregator knows (seconds, bytes, who withdrew) is not in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

from fedfair.aggregation.requests import GlobalModel
from fedfair.errors import DataError
from fedfair.news.site import RunFileUnwritten
from fedfair.plan.derived import trains
from fedfair.results.document import to_text
from fedfair.results.outcome import EndState, RunSubject, run_outcome
from fedfair.run.kept_file import KeptFile, kept_beside, write_kept
from fedfair.run.reference_file import FILE as REFERENCES
from fedfair.run.reference_file import KeptReferences, write_references
from fedfair.run.saved_model import ModelOrigin, TrainedModel, save_model, saved_of
from fedfair.run.training_run import TrainingRun
from fedfair.store.atomic_file import write_whole

MIN_NEWS = 100
"""The result is written when one in so many evaluations is new."""

SAVE, RESULT = "save", "result.json"
LAST, BEST, TRAINED = "last.safetensors", "best.safetensors", "trained.safetensors"

Noted: TypeAlias = Callable[[KeptReferences], KeptReferences]


class RunFolder:
    """The files of one run at one site; its methods are called from one thread at a time.

    Args:
        folder: of this run; it is made when the first file is due.
        subject: the plan and its model.
        noted: adds to references the note of this site's training records.
    """

    def __init__(self, folder: Path, subject: RunSubject, noted: Noted = lambda kept: kept) -> None:
        self._noted = noted
        self._save, self._result = folder / SAVE, folder / RESULT
        self._subject = subject
        self._origin = ModelOrigin.of_plan(
            subject.plan, subject.plan_digest, subject.schema, subject.initial_weights
        )
        self._best: tuple[TrainedModel, KeptFile | None] | None = None
        self._announced = 0

    def evaluated(
        self, training_run: TrainingRun, kept: KeptFile | None = None, *, is_best: bool
    ) -> RunFileUnwritten | None:
        """Write the files that an evaluation changes; call it right after the evaluation was applied.

        Args:
            training_run: the state, which may not change meanwhile.
            kept: the part of the model that this site has in that state; None where it keeps none.
            is_best: `Progress.is_best` of the evaluation.

        Returns:
            What to tell the operator; None where everything was written.
        """
        if is_best:
            self._best = saved_of(training_run, "best", self._subject.plan_digest), kept
        rounds = self._subject.plan.training.rounds
        words = f"round {training_run.rounds_done} of {rounds}"
        count = len(training_run.history)
        is_announced = 0 <= count - self._announced < max(1, count // MIN_NEWS)
        return self._write(training_run, EndState.RUNNING, words, kept, is_announced=is_announced)

    def ended(
        self, training_run: TrainingRun, state: EndState, words: str, kept: KeptFile | None = None
    ) -> RunFileUnwritten | None:
        """Write the files at the end of the run, or where this site leaves it.

        Args:
            training_run: the state.
            state: how it ended.
            words: the same, for people.
            kept: as for `evaluated`.

        Returns:
            What to tell the operator; None where everything was written.
        """
        return self._write(training_run, state, words, kept, is_announced=False)

    def _write(
        self, training_run: TrainingRun, state: EndState, words: str, kept: KeptFile | None, *, is_announced: bool
    ) -> RunFileUnwritten | None:
        """Write what is due; a file that fails does not keep the others from being tried."""
        best, layout, digest = self._best, self._subject.layout, self._subject.plan_digest
        models, has_model = {} if best is None else {BEST: best}, trains(self._subject.plan)
        if has_model:
            models[LAST] = saved_of(training_run, "present", digest), kept
        if has_model and state is EndState.FINISHED:
            models[TRAINED] = saved_of(training_run, "trained", digest), kept
        due: dict[Path, Callable[[], None]] = {
            self._save / name: partial(save_model, self._save / name, layout, model, self._origin)
            for name, (model, _) in models.items()
        }
        for name, (model, own) in models.items():
            if own is not None:
                place = self._save / name
                due[kept_beside(place)] = partial(write_kept, place, model, own)
        references = training_run.rules.references(training_run.state) if state is EndState.FINISHED else None
        if references is not None:
            place = self._save / REFERENCES
            due[place] = partial(write_references, place, self._noted(references))
        if not is_announced:
            result = run_outcome(self._subject, training_run.result(), state, words)
            due[self._result] = partial(write_whole, self._result, to_text(result))
        faults = {path: fault for path, write in due.items() if (fault := _fault_of(self._save, write))}
        if best is not None:
            # The training run may change the vector, or not keep this model, before the next evaluation.
            self._best = (_copy(best[0]), best[1]) if self._save / BEST in faults else None
        if not is_announced and self._result not in faults:
            self._announced = len(training_run.history)
        first = next(iter(faults), None)
        return None if first is None else RunFileUnwritten(first, faults[first])


def _copy(saved: TrainedModel) -> TrainedModel:
    return replace(saved, model=GlobalModel(saved.model.vector.copy(), saved.model.threshold))


def _fault_of(folder: Path, write: Callable[[], None]) -> str:
    """Write a file; return why it could not be written, empty where it was."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write()
    except OSError as error:
        return error.strerror or str(error)
    except DataError as error:
        cause = error.__cause__
        return (cause.strerror or str(cause)) if isinstance(cause, OSError) else error.message
    return ""
