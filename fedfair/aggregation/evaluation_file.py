"""The sums of one evaluation as a file: `fedfair/evaluation/1`, from which anybody can prove risks again.

    save/evaluation.json    of the output model, written by the aggregator and by `simulate --save`
    save/evaluation.bin     the opened sum itself, written by the aggregator

The file holds sums over all records: for each split the blocks that `loss_histogram.py` describes. Where a plan
publishes the means of every site, the file also has their numbers of records, and `result.json` their means.
`plan_digest` is the digest that every site approved. `model_digest` is the SHA-256 of the model's flat vector,
all its values in the order of the layout as little-endian numbers of the plan's width; `fedfair.sha256` in the
metadata of a saved model is the same digest.
Decides the form and checks it when it is read; where it is written is the caller's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedfair.aggregation.dp_histogram import possible_header
from fedfair.aggregation.evaluation_sums import confused_classes, planned_layout
from fedfair.aggregation.header import Header
from fedfair.aggregation.loss_histogram import SPLITS, HistogramSpec, block_layout
from fedfair.aggregation.requests import histogram_spec, vector_sha256
from fedfair.aggregation.site_means import site_means
from fedfair.aggregation.spec import HEADER_DTYPE
from fedfair.errors import DataError
from fedfair.file_formats import REMEDY, other_version
from fedfair.plan.derived import guess_loss, protects_records, published_sites
from fedfair.plan.digest import format_digest
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.losses import CROSS_ENTROPY, loss_in_words
from fedfair.plan.schema import Plan

FORMAT: Final = "fedfair/evaluation/1"
OPENED_SUFFIX = ".bin"
"""Of the opened sum, beside the record."""

Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
MAX_COUNT = 1 << 53
"""Up to here every whole number is a float64, in which sums are kept."""

Count = Annotated[int, Field(ge=0)]
Summed = Annotated[Count, Field(le=MAX_COUNT)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Split = Literal["train", "validation", "test"]


class ScoreSums(BaseModel):
    """The summed scores of one class over one split, as `score_histogram.py` describes them.

    Attributes:
        positives: (bins,), how many records of the class each bin holds.
        negatives: (bins,), how many others.
        scores: (bins / 16,), the sum of the scores in each 16 bins.
        squares: the sum of the squared differences between score and outcome.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    positives: tuple[Summed, ...]
    negatives: tuple[Summed, ...]
    scores: tuple[Finite, ...]
    squares: Finite


class SplitSums(BaseModel):
    """The sums over one split of all records.

    Attributes:
        n: number of records, at least 1.
        correct: how many were classified correctly; None where there are no classes.
        smoothed: sum of the smoothed objective f~ at the threshold that was broadcast with the model; that is the
            record's, except in round 0 of `threshold_init: quantile`, which learns its threshold from these sums.
        counts: (bins + 1,), how many losses each bin holds; the last bin holds those from `loss_range` on.
        sums: (bins + 1,), the sum of the losses in each bin.
        confusion: (classes, classes), how many records of each class were taken for which; None with more than 64
            classes.
        sites: how many records each site has, without those that may not be reported; None where the plan does not
            publish the means of single sites.
        scores: the histograms of scores, as `score_histogram.scored_classes` lists the classes; None, and not in
            the file, unless the plan asks for them.
        figures: the sums of `loss_metrics.py`; None, and not in the file, where there are none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    n: Annotated[int, Field(ge=1, le=MAX_COUNT)]
    correct: Summed | None
    smoothed: Finite
    counts: tuple[Summed, ...]
    sums: tuple[Finite, ...]
    confusion: tuple[tuple[Summed, ...], ...] | None = None
    sites: dict[str, Annotated[int, Field(ge=1, le=MAX_COUNT)]] | None = None
    scores: tuple[ScoreSums, ...] | None = None
    figures: tuple[Finite, ...] | None = None


class EvaluationRecord(BaseModel):
    """One evaluation of one model.

    Attributes:
        format: the name of this format.
        plan_digest: "sha256:" and 64 hex digits; of the plan that every site approved.
        model_digest: the same form; of the flat vector, see the module.
        round: training rounds that the model has behind it.
        threshold: its threshold (c), in units of the loss.
        participants: how many sites contributed.
        classes: how many the model tells apart; None where records are not classified.
        loss: its name and unit in words; None, and not in the file, for cross-entropy in nats.
        guess: the loss of guessing; None, and not in the file, for cross-entropy, where it is log(classes), and
            where guessing has no meaning.
        masked: whether nobody, not even the aggregator, saw the contribution of one site.
        bins: equal bins over [0, loss_range].
        loss_range: where the overflow bin begins, in units of the loss.
        splits: the sums of each split that has records.
        replaced: how many losses were not finite or too large, so that sites counted others in their place;
            unless it is 0, the sums prove nothing about the model.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["fedfair/evaluation/1"] = FORMAT
    plan_digest: Digest
    model_digest: Digest
    round: Count
    threshold: Finite
    participants: Annotated[int, Field(ge=1)]
    classes: Annotated[int, Field(ge=2)] | None
    masked: bool
    bins: Annotated[int, Field(ge=1)]
    loss_range: Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
    splits: dict[Split, SplitSums]
    replaced: Summed = 0
    loss: Annotated[str, Field(pattern=r"^[ -~]{1,1000}$")] | None = None
    guess: Annotated[float, Field(gt=0.0, allow_inf_nan=False)] | None = None

    @property
    def spec(self) -> HistogramSpec:
        """Return the histogram whose bins these are."""
        return HistogramSpec(self.bins, self.loss_range, self.classes is not None)

    def block(self, split: Split) -> NDArray[np.float64]:
        """Return one split's sums as the block that `cvar_bounds.py` reads: float64 array.

        Raises:
            DataError: the split has no records, other bins than the record says, or others than n in them.
        """
        sums = self.splits.get(split)
        if sums is None:
            raise DataError(f"the evaluation has no {split} records; it has {', '.join(self.splits)}")
        if {len(sums.counts), len(sums.sums)} != {self.bins + 1}:
            raise DataError(
                f"the evaluation's {split} split has {len(sums.counts)} counts and {len(sums.sums)} sums; "
                f"{self.bins} bins and the one above them have {self.bins + 1} of each"
            )
        if sum(sums.counts) != sums.n:
            raise DataError(
                f"the evaluation's {split} split has {sums.n} records, its bins hold {sum(sums.counts)}",
                "it was edited or damaged; give the save/evaluation.json of a run as it was written",
            )
        return block_layout(self.spec).built(
            records=sums.n,
            correct=() if sums.correct is None else sums.correct,
            smoothed=sums.smoothed,
            counts=sums.counts,
            losses=sums.sums,
        )


def split_sums(
    header: NDArray[np.float64], layout: Header, sites: Sequence[str] = (), fewest: int = 1
) -> dict[Split, SplitSums]:
    """Return the header of an evaluation sum in its parts, without the splits without records.

    Args:
        header: float64 array (layout.length,), the sum over all sites.
        layout: from `evaluation_layout`.
        sites: those whose means the plan publishes, in the order of their rows.
        fewest: the fewest records of a group about which anything is published.
    """
    sums = layout.read(header)
    names: tuple[Split, ...] = SPLITS
    told = dict(zip(sites, site_means(sums["sites"], sums["splits"]["records"], fewest), strict=True))
    found = zip(names, sums["splits"], sums["confusion"], sums["scores"], sums["figures"], strict=True)
    return {
        split: _split_sums(
            block,
            matrix,
            scores,
            figures,
            {site: means[split].n for site, means in told.items() if split in means} if sites else None,
        )
        for split, block, matrix, scores, figures in found
        if block["records"] > 0
    }


def _split_sums(
    block: np.void,
    matrix: NDArray[np.float64],
    scores: NDArray[Any],
    figures: NDArray[np.float64],
    sites: dict[str, int] | None,
) -> SplitSums:
    return SplitSums(
        n=int(block["records"]),
        correct=int(block["correct"]) if block["correct"].ndim == 0 else None,
        smoothed=float(block["smoothed"]),
        counts=tuple(int(count) for count in block["counts"]),
        sums=tuple(float(value) for value in block["losses"]),
        confusion=tuple(tuple(int(cell) for cell in row) for row in matrix) if matrix.size else None,
        sites=sites,
        scores=tuple(_score_sums(column) for column in scores) if scores.size else None,
        figures=tuple(figures.tolist()) if figures.size else None,
    )


def _score_sums(column: np.void) -> ScoreSums:
    return ScoreSums(
        positives=tuple(int(count) for count in column["positives"]),
        negatives=tuple(int(count) for count in column["negatives"]),
        scores=tuple(float(value) for value in column["scores"]),
        squares=float(column["squares"]),
    )


def to_text(record: EvaluationRecord) -> str:
    """Return the file's text; every float is spelt so that it reads back as the same number."""
    # What a file does not have is written as it was before there was any such thing.
    splits = record.splits.values()
    parts = {part for part in ("scores", "figures") if all(getattr(split, part) is None for split in splits)}
    unsaid: dict[str, Any] = {name: True for name in ("loss", "guess") if getattr(record, name) is None}
    return record.model_dump_json(exclude=unsaid | {"splits": {"__all__": parts}}) + "\n"


def header_bytes(header: NDArray[np.float64]) -> bytes:
    """Return an opened sum as little-endian float64 numbers."""
    return np.ascontiguousarray(header, HEADER_DTYPE).tobytes()


def parse_header(raw: bytes, place: str) -> NDArray[np.float64]:
    """Return the opened sum that `header_bytes` wrote.

    Args:
        raw: the file's content.
        place: the file's name, for the message.

    Raises:
        DataError: it is no sum.
    """
    if not raw or len(raw) % HEADER_DTYPE.itemsize:
        raise DataError(
            f"{place} has {len(raw)} bytes, so it is no opened sum", "give save/evaluation.bin of a run"
        )
    return np.frombuffer(raw, HEADER_DTYPE).astype(np.float64)


def parse_evaluation(text: str | bytes, place: str) -> EvaluationRecord:
    """Return what a file says.

    Raises:
        DataError: the text is no evaluation of this format; names the first fault.
    """
    if fault := other_version(text, FORMAT, place):
        raise DataError(fault, REMEDY)
    try:
        record = EvaluationRecord.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise DataError(
            f"{place} is no evaluation: {where}: {first['msg']}", "give the save/evaluation.json of a run"
        ) from error
    for split in record.splits:
        record.block(split)
    return record


@dataclass(frozen=True)
class EvaluatedModel:
    """One evaluation sum and the model that it is about. Nothing changes its array.

    Attributes:
        header: float64 array, the total over all sites as it was opened.
        vector_sha256: 32 bytes, see `vector_sha256`.
        threshold: the threshold that was broadcast with the model.
        round: training rounds that the model has behind it.
        contributors: how many sites contributed.
        replaced: how many losses were replaced because they were not finite or too large.
    """

    header: NDArray[np.float64]
    vector_sha256: bytes
    threshold: float
    round: int
    contributors: int
    replaced: int = 0

    @cached_property
    def header_sha256(self) -> bytes:
        """Return the SHA-256 (32 bytes) of the header, as `requests.vector_sha256`."""
        return vector_sha256(self.header)


def evaluation_record(
    plan: Plan, plan_digest: bytes, schema: FeatureSchema, evaluated: EvaluatedModel, *, masked: bool
) -> EvaluationRecord:
    """Return what is published about an evaluation; of sums under noise the nearest ones that records may have.

    Args:
        plan: the plan that was run.
        plan_digest: its digest, 32 bytes.
        schema: of the features.
        evaluated: the sums.
        masked: whether the contributions were masked on their way.
    """
    spec, loss = histogram_spec(plan, schema), plan.task.loss
    is_usual, header = loss == CROSS_ENTROPY, evaluated.header
    if protects_records(plan):
        header = possible_header(header, spec, confused_classes(plan, schema))
    return EvaluationRecord(
        plan_digest=format_digest(plan_digest),
        model_digest=format_digest(evaluated.vector_sha256),
        round=evaluated.round,
        threshold=evaluated.threshold,
        participants=evaluated.contributors,
        classes=confused_classes(plan, schema) or None,
        masked=masked,
        bins=spec.bins,
        loss_range=spec.loss_range,
        splits=split_sums(header, planned_layout(plan, schema), published_sites(plan), plan.evaluation.min_group),
        replaced=evaluated.replaced,
        loss=None if is_usual else loss_in_words(loss),
        guess=None if is_usual else guess_loss(plan, schema.classes),
    )
