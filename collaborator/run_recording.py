"""Records the outcome of a run at this site: its models and result, and how the site's own records fare.

Called in the worker's thread, right after an opened sum was applied. Files of a run are `run_folder.py`'s, figures
are `results.site_figures`'s. Nothing here is ever sent, and nothing that is sent depends on it. What there is to
say to the operator is kept until the driver takes it.

    logs/<name>_own_figures.jsonl    one JSON line per evaluation: how this site's own records fare

Only the owner of the file can read it; this module knows no link and no message.
Each line says of which model all its figures are, and the last one of a finished run is of the model it returned.
Each line has `time` and `run_id`, as the site's other logs do. It begins a new file in time and forgets the oldest
one. What the figures are is said in `results.site_figures`.

The opened survey of a run is held against this site's own columns, and the site stops where its policy says so.
What is compared is `fedfair.tables.survey_faults`'s. The outcome stays here: it is said to the operator once for
each survey, and the aggregator learns of a stop only that there was one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from collaborator.run_folder import RunFolder
from fedfair.aggregation.requests import GlobalModel
from fedfair.aggregation.survey import SurveyLayout
from fedfair.errors import DataError, FedfairError, SurveyError, TrainingError
from fedfair.ids import ParticipantId
from fedfair.news.event import News
from fedfair.news.site import (
    LastSumsMissed,
    ModelReturned,
    OwnRecordsEvaluated,
    RunFileUnwritten,
    SurveyCompared,
    SurveyFaultFound,
    ValuesOmitted,
)
from fedfair.plan.derived import trains
from fedfair.process.log_lines import log_line
from fedfair.results.outcome import EndState, RunSubject
from fedfair.results.site_figures import AggregateFigures, LocalLosses, SiteFigures, SplitFigures, site_figures
from fedfair.run.kept_file import KeptFile
from fedfair.run.kept_sum import KeptSum
from fedfair.run.progress import Progress
from fedfair.run.reference_file import KeptReferences
from fedfair.run.replica import RunReplica
from fedfair.store.disk import writing
from fedfair.store.rotated_log import MAX_LOG_BYTES, RotatedLog
from fedfair.tables.profile import DataProfile
from fedfair.tables.site_survey import SiteSurvey
from fedfair.tables.survey_faults import SurveyFault, survey_faults
from fedfair.training.site_task import SiteTask


@dataclass
class SurveyCheck:
    """Everything that a site compares an opened survey with.

    Attributes:
        participant: the site.
        own: its part of the survey.
        layout: the columns of the plan's survey.
        policy: warn or stop, `policy.survey` of its own file.
        profile: of its records, for spellings that differ only in case.
    """

    participant: ParticipantId
    own: SiteSurvey
    layout: SurveyLayout
    policy: Literal["warn", "stop"]
    profile: DataProfile | None = None
    _known: tuple[KeptSum, tuple[SurveyFault, ...]] | None = field(default=None, init=False, repr=False)

    def notices(self, survey: KeptSum) -> tuple[News, ...]:
        """Return what there is to say about a survey; nothing where it was said before.

        Raises:
            RemoteProtocolError: it does not have this site's part in it.
        """
        if self._known is not None and self._known[0] is survey:
            return ()
        faults = self._faults(survey)
        columns = len(self.layout.numeric) + len(self.layout.categories)
        compared = SurveyCompared(len(survey.members), columns, len(faults))
        return (compared, *(SurveyFaultFound(fault) for fault in faults))

    def stop(self, survey: KeptSum) -> SurveyError | None:
        """Return why this site stops after a survey; None where it continues."""
        faults = self._faults(survey)
        if self.policy == "warn" or not faults:
            return None
        return SurveyError(
            f"the survey shows {len(faults)} probable fault(s) in the records of {self.participant}: "
            + "; ".join(fault.sentence for fault in faults),
            "correct the records and begin a new run; or, if they are right, set policy.survey: warn in "
            "collaborator.yaml and start this site again",
        )

    def _faults(self, survey: KeptSum) -> tuple[SurveyFault, ...]:
        if self._known is None or self._known[0] is not survey:
            is_member = self.participant in survey.members
            spelt = spellings(self.profile)
            faults = survey_faults(survey.header, self.own, self.layout, spelt, is_member=is_member)
            self._known = survey, faults
        return self._known[1]


def spellings(profile: DataProfile | None) -> dict[str, str]:
    """Return by column what is known of spellings that differ only in case."""
    columns = () if profile is None else profile.columns
    return {
        column.name: ", ".join(f"'{one.found}' for '{one.named}'" for one in column.case_variants[:3])
        for column in columns
        if column.case_variants
    }


class SiteFiguresLog:
    """The log of one collaborator; its file is made by the first line.

    Args:
        folder: of this site's logs, which exists.
        name: the collaborator.
        max_log_bytes: the most that one file holds before a new one is begun.
    """

    def __init__(self, folder: Path, name: str, max_log_bytes: int = MAX_LOG_BYTES) -> None:
        self._log = RotatedLog(folder / f"{name}_own_figures.jsonl", max_bytes=max_log_bytes, owner_only=True)

    @property
    def path(self) -> Path:
        """Return the file."""
        return self._log.path

    def append(self, run_id: str, figures: SiteFigures) -> None:
        """Append the line of one evaluation.

        Args:
            run_id: the run.
            figures: of the evaluation.

        Raises:
            FedfairError: the line cannot be written.
        """
        fields = {
            "round": figures.round,
            "model": figures.model,
            "returned": figures.is_returned,
            "group_size": figures.group_size,
            "own": {name: _fields(split) for name, split in figures.own.items()},
            "everybody": {name: _fields(split) for name, split in figures.everybody.items()},
        }
        with writing(self._log.path):
            self._log.append(log_line(datetime.now(UTC), run_id, fields))

    def close(self) -> None:
        """Close the file."""
        self._log.close()


def _fields(split: SplitFigures) -> dict[str, object]:
    """Return the figures of one split; the AUC only where there is one."""
    fields = asdict(split)
    if split.auc is None:
        del fields["auc"]
    return fields


class RunRecording:
    """The records of one site.

    Args:
        task: what computes.
        subject: the plan and its model.
        runs: the folder of this site's own copies of runs.
        figures: the log of this site's own figures.
        survey: what an opened survey is compared with; None where the plan has none.
        kept: returns the part of the model that this site has in the present state of a run, None for none.
        further: returns what else there is to say to the operator, once.
    """

    def __init__(
        self,
        task: SiteTask,
        subject: RunSubject,
        runs: Path,
        figures: SiteFiguresLog,
        survey: SurveyCheck | None = None,
        kept: Callable[[RunReplica], KeptFile | None] = lambda _: None,
        further: Callable[[], list[News]] = list,
    ) -> None:
        self._task = task
        self._subject = subject
        self._runs = runs
        self._figures = figures
        self._survey = survey
        self._kept = kept
        self._further = further
        self._folder: tuple[str, RunFolder] | None = None
        self._notices: deque[News] = deque()
        self._reported = b""  # the model whose figures were reported last

    def take_notices(self) -> list[News]:
        """Return what there is to say to the operator, once."""
        taken = [*self._notices, *self._further()]
        self._notices.clear()
        return taken

    def progressed(self, replica: RunReplica, before: GlobalModel, progress: Progress, *, kept: bool) -> None:
        """Record the outcome of an opened sum.

        Args:
            replica: the copy of the run, after the sum.
            before: the global model before the sum.
            progress: the outcome of the sum.
            kept: whether the run is kept in a folder; a run that evaluates a saved model is not.
        """
        evaluation, evaluated = progress.evaluation, progress.evaluated
        if evaluation is None or evaluated is None:
            return
        rankings = replica.training_run.rules.evaluator.rankings(evaluated.header)
        aggregate = AggregateFigures(evaluated.vector_sha256, evaluation, rankings)
        model = next(
            (each for each in (replica.state.model, before) if each.vector_sha256 == aggregate.vector_sha256), None
        )
        if model is not None:
            self._report_own(replica.run_id, model, aggregate)
        if kept:
            own = self._kept(replica)
            folder = self._folder_of(replica)
            self._note(folder.evaluated(replica.training_run, own, is_best=progress.is_best))

    def _report_own(self, run_id: str, model: GlobalModel, aggregate: AggregateFigures) -> None:
        """Tell how this site's own records fare under a model, beside those of all sites."""
        self._reported = aggregate.vector_sha256
        try:
            own = LocalLosses(model.vector_sha256, self._task.losses_of(model))
            figures = site_figures(self._subject.plan, own, aggregate)
            self._figures.append(run_id, figures)
            self._notices.append(OwnRecordsEvaluated(figures))
        except (DataError, TrainingError) as fault:
            self._notices.append(ValuesOmitted(f"this site's own figures of the evaluation: {fault.message}"))
        except FedfairError as fault:
            self._notices.append(RunFileUnwritten(self._figures.path, fault.message))

    def _report_returned(self, replica: RunReplica) -> None:
        """Tell the same of the model that the run returns, where the last evaluation was of another one."""
        state, evaluated = replica.state, replica.state.evaluated
        if evaluated is None or evaluated.vector_sha256 != state.model.vector_sha256:
            return
        if evaluated.vector_sha256 != self._reported:
            rankings = replica.training_run.rules.evaluator.rankings(evaluated.header)
            aggregate = AggregateFigures(evaluated.vector_sha256, state.latest, rankings, is_returned=True)
            self._report_own(replica.run_id, state.model, aggregate)

    def surveyed(self, survey: KeptSum) -> SurveyError | None:
        """Say what a survey shows of this site's own columns, once; return why it stops, if it does.

        Raises:
            RemoteProtocolError: the survey does not have this site's part in it.
        """
        if self._survey is None:
            return None
        self._notices.extend(self._survey.notices(survey))
        return self._survey.stop(survey)

    def ended(self, replica: RunReplica, words: str, *, finished: bool) -> None:
        """Record the end of the run.

        Args:
            replica: the copy of the run.
            words: how the run ended.
            finished: whether this site has seen all of its sums.
        """
        which = replica.training_run.which
        if finished:
            self._report_returned(replica)
            if which is not None and trains(self._subject.plan):
                self._notices.append(ModelReturned(which.words))
        else:
            self._notices.append(LastSumsMissed(int(replica.state.rounds_done)))
        state = EndState.FINISHED if finished else EndState.RUNNING
        own = self._kept(replica)
        self._note(self._folder_of(replica).ended(replica.training_run, state, words, own))

    def close(self) -> None:
        """Close the log."""
        self._figures.close()

    def _folder_of(self, replica: RunReplica) -> RunFolder:
        if self._folder is None or self._folder[0] != replica.run_id:
            self._folder = replica.run_id, RunFolder(self._runs / replica.run_id, self._subject, self._noted)
        return self._folder[1]

    def _noted(self, kept: KeptReferences) -> KeptReferences:
        return self._task.noted(kept)

    def _note(self, notice: RunFileUnwritten | None) -> None:
        if notice is not None:
            self._notices.append(notice)
