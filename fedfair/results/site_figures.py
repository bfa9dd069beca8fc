"""Says how one site's own records fare under the global model, beside those of all sites.

Made at the site, of its own losses and of the evaluation that every member sees; nothing of it is ever sent. A
site may know everything of its own records, so a group of fewer of them than `evaluation.min_group` is reported,
with its number. The overall figures keep to that rule. Figures that stand side by side are of one model: both
sides say of which, and two models are refused. Decides the figures; who shows them is the caller's business. No
torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from fedfair.aggregation.cvar_bounds import SplitSummary
from fedfair.aggregation.evaluator import Evaluation
from fedfair.aggregation.loss_histogram import SPLITS
from fedfair.aggregation.ranking import ClassRanking
from fedfair.errors import LocalProtocolError
from fedfair.fairness.cvar import tail_count
from fedfair.fairness.metrics import summarise_losses
from fedfair.fairness.record_losses import Losses, SiteLosses
from fedfair.plan.digest import format_digest
from fedfair.plan.schema import Plan
from fedfair.results.scores import mean_auc, split_scores
from fedfair.results.writing import is_suppressed


@dataclass(frozen=True, slots=True)
class SplitFigures:
    """The figures of one split.

    Attributes:
        records: how many there are, at least 1.
        mean: mean loss, in nats.
        worst: mean loss of the worst group; None where it has fewer people than the plan lets be reported.
        worst_records: how many records the worst group has, rounded up.
        accuracy: share of records that were classified correctly, 0 to 1; None where there are no classes.
        auc: how well the scores rank, 0 to 1, the mean over the classes; None unless the plan has
            `evaluation.scores`, and where a class has too few records for it.
    """

    records: int
    mean: float
    worst: float | None
    worst_records: int
    accuracy: float | None
    auc: float | None = None


@dataclass(frozen=True, slots=True)
class LocalLosses:
    """The losses of one site's own records under one model.

    Attributes:
        vector_sha256: 32 bytes, of the model.
        splits: the losses, for the splits that have records.
    """

    vector_sha256: bytes
    splits: SiteLosses


@dataclass(frozen=True, slots=True)
class AggregateFigures:
    """The overall figures of one model, all from one opened sum.

    Attributes:
        vector_sha256: 32 bytes, of the model.
        evaluation: what the sum says.
        rankings: how all scores rank in it, by split; nothing unless the plan asks for it.
        is_returned: whether this is said of the model that the run returns, at its end.
    """

    vector_sha256: bytes
    evaluation: Evaluation
    rankings: Mapping[str, tuple[ClassRanking, ...]]
    is_returned: bool = False


@dataclass(frozen=True, slots=True)
class SiteFigures:
    """One evaluation of one model, as one site sees it; numbers alone.

    Attributes:
        model: the digest of the model that all figures are of, "sha256:" and 64 hex digits.
        is_returned: whether this is said of the model that the run returns, at its end.
        round: training rounds that the model has behind it.
        group_size: of the worst group, a share of the records: the plan's objective.worst_group_size.
        own: of this site's records, for the splits that it has records of, in the order train, validation, test.
        everybody: of all sites' records together, for the same splits.
    """

    model: str
    is_returned: bool
    round: int
    group_size: float
    own: Mapping[str, SplitFigures]
    everybody: Mapping[str, SplitFigures]


def site_figures(plan: Plan, own: LocalLosses, aggregate: AggregateFigures) -> SiteFigures:
    """Return the figures of one evaluation at one site.

    Args:
        plan: the plan that is run.
        own: the losses of this site's records under the very model that was evaluated. Where the site took no part
            in the evaluation, it computes them anew.
        aggregate: the overall figures.

    Raises:
        LocalProtocolError: the two are of different models.
        DataError: a loss is negative or not finite.
    """
    if own.vector_sha256 != aggregate.vector_sha256:
        raise LocalProtocolError(
            f"this site's own losses are of the model {own.vector_sha256.hex()[:16]}, the overall figures of "
            f"{aggregate.vector_sha256.hex()[:16]}"
        )
    losses, evaluation, rankings = own.splits, aggregate.evaluation, aggregate.rankings
    size, fewest = plan.objective.worst_group_size, plan.evaluation.min_group
    names = [name for name in SPLITS if name in losses and name in evaluation.splits]
    return SiteFigures(
        format_digest(aggregate.vector_sha256),
        aggregate.is_returned,
        int(evaluation.round),
        size,
        {name: _own(losses[name], size) for name in names},
        {name: _overall(evaluation.splits[name], size, fewest, rankings.get(name, ())) for name in names},
    )


def _own(losses: Losses, size: float) -> SplitFigures:
    found = summarise_losses(losses.values, losses.correct, (size,))
    worst = found.by_group_size[size].worst
    return SplitFigures(
        found.count, found.mean, worst, _group(found.count, size), found.accuracy, mean_auc(losses)
    )


def _overall(summary: SplitSummary, size: float, fewest: int, rankings: tuple[ClassRanking, ...]) -> SplitFigures:
    worst = None if is_suppressed(summary.n, size, fewest) else summary.by_group_size[size].worst
    auc = split_scores(rankings, fewest, {}, proved=True).auc
    return SplitFigures(summary.n, summary.mean, worst, _group(summary.n, size), summary.accuracy, auc)


def _group(records: int, size: float) -> int:
    return math.ceil(tail_count(records, size))
