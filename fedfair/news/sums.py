"""News of a run's sums for the aggregator's operator: applied, evaluated, lost, and who was too slow for one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from fedfair.aggregation.cvar_bounds import SplitSummary
from fedfair.aggregation.evaluator import Evaluation
from fedfair.ids import ParticipantId, RoundNumber
from fedfair.news.event import LogLevel, News, json_value
from fedfair.results.costs import SumCost
from fedfair.results.document import Json
from fedfair.results.loss_text import loss_text
from fedfair.rounds.slowness.stragglers import SumPace
from fedfair.run.progress import Progress
from fedfair.statistics.table import Purpose
from fedfair.watching import run_status as watched


class SumApplied(News):
    """A sum was opened and applied.

    Attributes:
        progress: its outcome.
        rounds_total: training rounds of the plan.
    """

    level = LogLevel.DEBUG
    text = "the {progress.purpose.value} sum of round {progress.round} of {rounds_total} was applied"
    is_notice = is_noted = False

    progress: Progress
    rounds_total: int

    def fields(self) -> Mapping[str, Json]:
        """Return the values of the JSON log."""
        return {
            "purpose": self.progress.purpose.value,
            "round": int(self.progress.round),
            "rounds_total": self.rounds_total,
            "contributors": self.progress.contributors,
            "replaced_values": self.progress.replaced,
        }

    def change(self, status: watched.RunStatus, now: datetime) -> watched.RunStatus:
        """Return the status after it."""
        if self.progress.purpose.statistic.is_round:
            return watched.round_ended(status, int(self.progress.round), now)
        return status


class RoundEvaluated(News):
    """A model was evaluated.

    Attributes:
        round: training rounds done.
        rounds_total: training rounds of the plan.
        threshold: of the objective, after the sum that completed the evaluation.
        worst_group_size: of the objective, in (0, 1].
        evaluation: the figures, over all sites together.
    """

    is_notice = is_noted = False

    round: int
    rounds_total: int
    threshold: float
    worst_group_size: float
    evaluation: Evaluation

    @property
    def figures(self) -> str:
        """The threshold, then mean and worst-group risk by split, in words."""
        words = [f"threshold {loss_text(self.threshold, 4)}"]
        words += [
            f"{name}: mean {loss_text(split.mean, 4)}, worst {self.worst_group_size:.0%} "
            f"{loss_text(self.worst(split), 4)}"
            + ("" if split.accuracy is None else f", accuracy {split.accuracy:.1%}")
            for name, split in self.evaluation.splits.items()
        ]
        return "; ".join(words)

    @property
    def sentence(self) -> str:
        """What the operator reads."""
        return f"round {self.round} of {self.rounds_total}: {self.figures}"

    def worst(self, split: SplitSummary) -> float:
        """Return the loss of the worst group of a split."""
        return split.by_group_size[self.worst_group_size].worst

    def fields(self) -> Mapping[str, Json]:
        """Return the values of the JSON log."""
        splits = {
            name: {"mean": split.mean, "worst": self.worst(split)}
            | ({} if split.accuracy is None else {"accuracy": split.accuracy})
            for name, split in self.evaluation.splits.items()
        }
        values = {name: value for name, value in vars(self).items() if name != "evaluation"} | {"splits": splits}
        return {name: json_value(value) for name, value in values.items()}

    def change(self, status: watched.RunStatus, _now: datetime) -> watched.RunStatus:
        """Return the status after it."""
        splits = {
            name: watched.PooledFigures(split.mean, self.worst(split), split.accuracy)
            for name, split in self.evaluation.splits.items()
        }
        return watched.evaluated(status, watched.PooledEvaluation(int(self.evaluation.round), splits))


def news_of_sum(progress: Progress, rounds_total: int, worst_group_size: float) -> list[News]:
    """Return the news of a sum that was applied: that it was, and of an evaluation its figures.

    Args:
        progress: the outcome of the sum.
        rounds_total: training rounds of the plan.
        worst_group_size: of the plan.
    """
    applied: list[News] = [SumApplied(progress, rounds_total)]
    if progress.evaluation is not None:
        number = int(progress.round)
        applied.append(
            RoundEvaluated(number, rounds_total, progress.threshold, worst_group_size, progress.evaluation)
        )
    return applied


@dataclass(frozen=True, slots=True)
class SumMeasured:
    """The cost of a sum that has closed, and how long each site took for it; it has no sentence.

    Attributes:
        cost: in seconds and bytes.
        pace: the seconds of each site.
    """

    cost: SumCost
    pace: SumPace

    def updated(self, status: watched.RunStatus, now: datetime) -> watched.RunStatus:
        """Return the status after it."""
        del now
        cost, pace = self.cost, self.pace
        status = watched.summed(status, cost.purpose.value, cost.seconds, cost.bytes_up, cost.bytes_down)
        return watched.answered(status, dict(pace.answers.items()), pace.median, pace.left_behind)


class AnswerUnawaited(News):
    """A sum continues without a collaborator.

    Attributes:
        who: its name.
        purpose: of the sum.
        round: of the sum.
        reason: why.
    """

    level = LogLevel.WARNING
    text = "{who} has been dropped from the {purpose.value} sum of round {round}: {reason}"

    who: ParticipantId
    purpose: Purpose
    round: RoundNumber
    reason: str

    def change(self, status: watched.RunStatus, _now: datetime) -> watched.RunStatus:
        """Return the status after it."""
        return watched.counted(status, "unawaited_answers", self.purpose.value)


class SiteLeftBehind(News):
    """A sum continues without a connected collaborator that has not answered; it is asked again later.

    Attributes:
        who: its name.
        purpose: of the sum.
        round: of the sum.
        seconds: how long it has been asked.
        median_seconds: what the sites took, by the last answer of each; None where no site was timed.
    """

    level = LogLevel.WARNING

    who: ParticipantId
    purpose: Purpose
    round: RoundNumber
    seconds: float
    median_seconds: float | None

    @property
    def sentence(self) -> str:
        """What the operator reads."""
        about = f"the {self.purpose.value} sum of round {self.round}"
        asked = f"{self.who} has not answered {about} within {_seconds(self.seconds, self.median_seconds)}"
        return f"{asked}; the sum continues without it, and it is asked again later"

    def change(self, status: watched.RunStatus, now: datetime) -> watched.RunStatus:
        """Return the status after it."""
        return watched.left_behind(status, self.who, now)


class SiteCaughtUp(News):
    """A collaborator that was left behind has answered, too late for that sum.

    Attributes:
        who: its name.
        seconds: what it took.
        median_seconds: what the sites took, by the last answer of each; None where no site was timed.
    """

    who: ParticipantId
    seconds: float
    median_seconds: float | None

    @property
    def sentence(self) -> str:
        """What the operator reads."""
        taken = _seconds(self.seconds, self.median_seconds)
        return f"{self.who} has answered after {taken}, too late for that sum"

    def change(self, status: watched.RunStatus, _now: datetime) -> watched.RunStatus:
        """Return the status after it."""
        return watched.answered(status, {self.who: self.seconds}, self.median_seconds)


class LieSuspected(News):
    """A collaborator's messages contradict those of others.

    Attributes:
        who: its name.
        reason: in words, with the names of the others.
    """

    level = LogLevel.ERROR
    text = "{who} may be lying, or those it contradicts: {reason}"

    who: ParticipantId
    reason: str


class AttemptLost(News):
    """An attempt at a sum has no total.

    Attributes:
        purpose: of the sum.
        round: of the sum.
        attempt: which attempt, from 1.
        reason: why.
    """

    level = LogLevel.WARNING
    text = "{purpose.value} sum of round {round}, attempt {attempt}, is lost: {reason}"

    purpose: Purpose
    round: RoundNumber
    attempt: int
    reason: str

    def change(self, status: watched.RunStatus, _now: datetime) -> watched.RunStatus:
        """Return the status after it."""
        return watched.counted(status, "lost_sums", self.purpose.value)


class EvaluationOmitted(News):
    """The run continues without an evaluation.

    Attributes:
        round: after which it was due.
        reason: why.
    """

    level = LogLevel.WARNING
    text = "the evaluation of round {round} is omitted: {reason}"

    round: RoundNumber
    reason: str


class JournalBehind(News):
    """Collaborators say that they know more rounds than the journal.

    Attributes:
        leads: by how many rounds each is ahead.
        rounds: how many of them are believed; 0 where too few say so.
    """

    level = LogLevel.ERROR

    leads: Mapping[ParticipantId, int]
    rounds: int

    @property
    def sentence(self) -> str:
        """What the operator reads."""
        said = ", ".join(f"{who} by {lead} rounds" for who, lead in self.leads.items())
        belief = (
            f"{self.rounds} rounds are accepted" if self.rounds else "too few report this, so the run continues"
        )
        return f"sites report rounds beyond the journal: {said}; {belief}"


class ChangesClipped(News):
    """Changes of the model were larger than the clip, for the first time since a sum without any.

    Attributes:
        round: training rounds done.
        clipped: how many changes, over all sites and parameters.
        clip: the clip.
    """

    level = LogLevel.WARNING
    text = (
        "round {round}: {clipped} changes were larger than the clip of "
        "{clip:g} and were clipped to it; the metrics count later ones"
    )

    round: RoundNumber
    clipped: int
    clip: float


class ValuesReplaced(News):
    """Values could not be summed, for the first time since a sum without any.

    Attributes:
        round: training rounds done.
        purpose: of the sum.
        values: how many values were replaced.
        sites: how many sites had such values.
    """

    level = LogLevel.WARNING
    text = (
        "round {round}: {values} values of {sites} site(s) in the "
        "{purpose.value} sum could not be summed (NaN, infinite or beyond their bound) and were "
        "replaced; each of these sites has a line about it in its own log; the metrics count later ones "
        "-> lower training.learning_rate, or have the sites look for extreme values in their data"
    )

    round: RoundNumber
    purpose: Purpose
    values: int
    sites: int


def _seconds(seconds: float, median: float | None) -> str:
    """Return one site's seconds in words, with the median of all beside them."""
    return f"{seconds:.1f} s" + ("" if median is None else f" (the median of the sites is {median:.2g} s)")
