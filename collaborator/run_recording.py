"""Records what a run comes to at this site: its models and result, and how the site's own records fare.

Called in the worker's thread, right after an opened sum was applied. Files of a run are `run_folder.py`'s, figures
are `results.site_figures`'s. Nothing here is ever sent, and nothing that is sent depends on it. What there is to
say to the operator is kept until the driver takes it.
"""

from __future__ import annotations

from collections import deque
from pathlib import Path

from collaborator.run_folder import RunFolder
from collaborator.site_figures_log import SiteFiguresLog
from collaborator.survey_check import SurveyCheck
from fedfair.aggregation.requests import GlobalModel
from fedfair.errors import DataError, FedfairError, SurveyError, TrainingError
from fedfair.news.event import News
from fedfair.news.site import LastSumsMissed, ModelReturned, OwnRecordsEvaluated, RunFileUnwritten, ValuesOmitted
from fedfair.results.outcome import EndState, RunSubject
from fedfair.results.site_figures import JudgedModel, LocalLosses, site_figures
from fedfair.run.kept_sum import KeptSum
from fedfair.run.progress import Progress
from fedfair.run.replica import RunReplica
from fedfair.training.client import TrainingClient


class RunRecording:
    """The records of one site.

    Args:
        task: what computes.
        subject: the plan and its model.
        runs: the folder of this site's own copies of runs.
        figures: the log of this site's own figures.
        survey: what an opened survey is compared with; None where the plan has none.
    """

    def __init__(
        self,
        task: TrainingClient,
        subject: RunSubject,
        runs: Path,
        figures: SiteFiguresLog,
        survey: SurveyCheck | None = None,
    ) -> None:
        self._task = task
        self._subject = subject
        self._runs = runs
        self._figures = figures
        self._survey = survey
        self._folder: tuple[str, RunFolder] | None = None
        self._notices: deque[News] = deque()
        self._told_of = b""  # the model whose figures were told last

    def take_notices(self) -> list[News]:
        """Return what there is to say to the operator, once."""
        taken = list(self._notices)
        self._notices.clear()
        return taken

    def progressed(self, replica: RunReplica, before: GlobalModel, progress: Progress, *, kept: bool) -> None:
        """Record what an opened sum came to.

        Args:
            replica: the copy of the run, after the sum.
            before: the global model before the sum.
            progress: what the sum came to.
            kept: whether the run is kept in a folder; a run that evaluates a saved model is not.
        """
        evaluation, evaluated = progress.evaluation, progress.evaluated
        if evaluation is None or evaluated is None:
            return
        rankings = replica.training_run.rules.evaluator.rankings(evaluated.header)
        judged = JudgedModel(evaluated.vector_sha256, evaluation, rankings)
        model = next(
            (each for each in (replica.state.model, before) if each.vector_sha256 == judged.vector_sha256), None
        )
        if model is not None:
            self._tell_own(replica.run_id, model, judged)
        if kept:
            self._note(self._folder_of(replica).evaluated(replica.training_run, is_best=progress.is_best))

    def _tell_own(self, run_id: str, model: GlobalModel, judged: JudgedModel) -> None:
        """Tell how this site's own records fare under a model, beside everybody's."""
        self._told_of = judged.vector_sha256
        try:
            own = LocalLosses(model.vector_sha256, self._task.losses_of(model))
            figures = site_figures(self._subject.plan, own, judged)
            self._figures.append(run_id, figures)
            self._notices.append(OwnRecordsEvaluated(figures))
        except (DataError, TrainingError) as fault:
            self._notices.append(ValuesOmitted(f"this site's own figures of the evaluation: {fault.message}"))
        except FedfairError as fault:
            self._notices.append(RunFileUnwritten(self._figures.path, fault.message))

    def _tell_returned(self, replica: RunReplica) -> None:
        """Tell the same of the model that the run returns, where the last evaluation was of another one."""
        state, evaluated = replica.state, replica.state.evaluated
        if evaluated is None or evaluated.vector_sha256 != state.model.vector_sha256:
            return
        if evaluated.vector_sha256 != self._told_of:
            rankings = replica.training_run.rules.evaluator.rankings(evaluated.header)
            judged = JudgedModel(evaluated.vector_sha256, state.latest, rankings, is_returned=True)
            self._tell_own(replica.run_id, state.model, judged)

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
            self._tell_returned(replica)
            if which is not None:
                self._notices.append(ModelReturned(which.words))
        else:
            self._notices.append(LastSumsMissed(int(replica.state.rounds_done)))
        state = EndState.FINISHED if finished else EndState.RUNNING
        self._note(self._folder_of(replica).ended(replica.training_run, state, words))

    def close(self) -> None:
        """Close the log."""
        self._figures.close()

    def _folder_of(self, replica: RunReplica) -> RunFolder:
        if self._folder is None or self._folder[0] != replica.run_id:
            self._folder = replica.run_id, RunFolder(self._runs / replica.run_id, self._subject)
        return self._folder[1]

    def _note(self, notice: RunFileUnwritten | None) -> None:
        if notice is not None:
            self._notices.append(notice)
