"""Models side by side, judged on the same held-out records: a table, a picture, and what luck explains.

What two models find hard in the same records says nothing about which is better, so differences are paired
(`fedfair.fairness.paired_difference`). Decides how a table and a picture of them look.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from fedfair.errors import DataError
from fedfair.fairness.paired_difference import PairedDifference, paired_difference, worst_group_terms
from fedfair.fairness.record_losses import Losses
from fedfair.plan.description import percent
from fedfair.report.blocks import notebook, table
from fedfair.report.charts import group_size_curves, group_sizes
from fedfair.report.figure_names import ACCURACY, OVERALL
from fedfair.report.figures import draw_on
from fedfair.report.sentences import Reported
from fedfair.results.document import ResultDocument
from fedfair.results.loss_text import loss_text

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


@dataclass(frozen=True, slots=True)
class JudgedModel:
    """A model with its losses on the records that were held out.

    Attributes:
        label: its name beside the others.
        result: of its run.
        losses: of the records, in the order of the sites.
    """

    label: str
    result: ResultDocument
    losses: Losses = field(repr=False)

    @property
    def reported(self) -> Reported:
        """The result under its name."""
        return Reported(self.label, "", self.result)


@dataclass(frozen=True, slots=True)
class ComparedFigure:
    """One figure of one model.

    Attributes:
        model: its name.
        figure: the name of the figure, such as "worst 10 %".
        value: a mean loss in its unit, or the accuracy as a share.
        difference: from the first model; None for the first itself.
    """

    model: str
    figure: str
    value: float
    difference: PairedDifference | None


class ModelComparison:
    """Two or more models on the same held-out records; the first is the one that the others are compared with.

    Args:
        models: at least two, under different names.
        group_sizes: shares above 0 to 1 whose worst group is shown.

    Raises:
        DataError: they were not judged on the same records, or two have one name.
    """

    def __init__(self, models: Sequence[JudgedModel], group_sizes: Sequence[float]) -> None:
        _check_alike(models)
        self._models = tuple(models)
        self._figures = tuple(_figures(models, group_sizes))

    def to_frame(self) -> pd.DataFrame:
        """Return a table with one row for each model and figure.

        Returns:
            The columns `model`, `figure` and `value`, and, against the first model, `difference` with `low` and
            `high`, between which it lies with about 95 % over the draw of the records.
        """
        import pandas as pd  # only who wants a table waits for it

        rows = []
        for each in self._figures:
            apart = each.difference
            ends = (None, None, None) if apart is None else (apart.value, apart.low, apart.high)
            rows.append((each.model, each.figure, each.value, *ends))
        return pd.DataFrame(rows, columns=["model", "figure", "value", "difference", "low", "high"])

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw the mean loss of the worst group against its size, a curve for each model.

        Args:
            axes: where to draw; None for a new figure.

        Returns:
            The axes.
        """
        return draw_on(axes, group_size_curves([model.reported for model in self._models]))

    def __repr__(self) -> str:
        """Return the table as text."""
        lines = [self._headings, *self._rows()]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)

    def _repr_html_(self) -> str:
        """Return the table and the picture, for notebooks."""
        first = self._models[0]
        caption = f"On the same {len(first.losses.labels)} records. In brackets: the ends between which the "
        caption += f"difference from {first.label} lies with 95 %."
        reported = [model.reported for model in self._models]
        return for_notebook(reported, table(caption, self._headings, self._rows()))

    @property
    def _headings(self) -> tuple[str, ...]:
        return ("model", *dict.fromkeys(each.figure for each in self._figures))

    def _rows(self) -> Iterator[tuple[str, ...]]:
        for model in self._models:
            cells = [_cell(each) for each in self._figures if each.model == model.label]
            yield (model.label, *cells)


def _figures(models: Sequence[JudgedModel], group_sizes: Sequence[float]) -> Iterator[ComparedFigure]:
    """Yield the figures of all models, one model after the other."""
    terms = [dict(_terms(model.losses, group_sizes)) for model in models]
    for model, held in zip(models, terms, strict=True):
        for name, numbers in held.items():
            apart = None if held is terms[0] else paired_difference(terms[0][name], numbers)
            yield ComparedFigure(model.label, name, float(numbers.mean()), apart)


def _terms(losses: Losses, group_sizes: Sequence[float]) -> Iterator[tuple[str, NDArray[np.float64]]]:
    """Yield each figure with one number for each record, whose mean it is."""
    values, correct = losses.values, losses.correct  # noqa: PD011 - of no table
    yield OVERALL, values
    if correct is not None:
        yield ACCURACY, correct.astype(np.float64)
    for size in group_sizes:
        yield f"worst {percent(size)}", worst_group_terms(values, size)


def for_notebook(results: Sequence[Reported], *parts: Markup) -> str:
    """Return parts of a page with the curves of results under them, as wide as a text, for a notebook."""
    about = [(each.label, each.document.plan_digest, each.document.threshold) for each in results]
    name = f"group-sizes-{hashlib.sha256(repr(about).encode()).hexdigest()[:8]}"
    return notebook([*parts, group_sizes(results, name)])


def _cell(each: ComparedFigure) -> str:
    apart = each.difference
    if apart is None:
        return loss_text(each.value)
    return f"{loss_text(each.value)} [{apart.low:+.3f}, {apart.high:+.3f}]"


def _check_alike(models: Sequence[JudgedModel]) -> None:
    first = models[0]
    for place, other in enumerate(models[1:], start=1):
        if other.label in [model.label for model in models[:place]]:
            raise DataError(f"two models are called {other.label!r}", "give each a name of its own")
        if not np.array_equal(first.losses.labels, other.losses.labels):
            raise DataError(
                f"{other.label} was judged on {len(other.losses.labels)} other records than {first.label}, which "
                f"was judged on {len(first.losses.labels)}",
                "give both runs the same sites, partition, test_fraction and seed",
            )
        if first.result.loss_unit != other.result.loss_unit:
            raise DataError(
                f"the losses of {other.label} are in {other.result.loss_unit}, those of {first.label} in "
                f"{first.result.loss_unit}",
                "compare runs with the same task.loss",
            )
