"""The last stage of a training run with exact risks: a query about the output model, step by step, or given up.

Holds what changes while the four sums are asked for. A step that cannot be right ends the query and not the run:
no site answers another request about the same model, so it could not be begun again, and the intervals of the
histogram are true as they are. What a step asks is `aggregation.quantile_query`'s. No torch.
"""

from __future__ import annotations

from collections.abc import Collection

from fedfair.aggregation.evaluator import Evaluation, Evaluator
from fedfair.aggregation.quantile_query import ExactQuery, QueryStep
from fedfair.aggregation.running_sum import Totals
from fedfair.errors import LocalProtocolError, RemoteProtocolError


class QuantileStage:
    """The exact evaluation of one training run.

    Args:
        evaluator: turns what the query proves into an evaluation.
        wanted: whether the plan asks for one.

    Attributes:
        query: how far it has come; None before, after, and where it was given up.
        fault: why it was given up; empty where it was not.
    """

    def __init__(self, evaluator: Evaluator, *, wanted: bool) -> None:
        self._evaluator = evaluator
        self._wanted = wanted
        self.query: ExactQuery | None = None
        self.fault = ""

    @property
    def step(self) -> QueryStep | None:
        """Return what is to be asked; None where nothing is."""
        return None if self.query is None else self.query.step

    def begin(self) -> bool:
        """Begin, if the plan asks for it; return whether there is something to be asked."""
        if self._wanted and not self.fault:
            self.query = ExactQuery.of(self._evaluator.group_sizes)
        return self.query is not None

    def apply_aggregate(self, totals: Totals, members: Collection[str], coarse: Evaluation) -> Evaluation | None:
        """Take everybody's answers to a step.

        Args:
            totals: the sum.
            members: who took part.
            coarse: the evaluation of the same model from a histogram.

        Returns:
            That evaluation with the risks that the whole query has proved, after the last step; None before, and
            where the query had to be given up.

        Raises:
            LocalProtocolError: nothing was asked.
        """
        if self.query is None:
            raise LocalProtocolError("an exact evaluation was answered that was not asked for")
        try:
            query = self.query.apply_aggregate(totals.header, members)
            sharpened = self._evaluator.sharpened(coarse, query) if query.step is None else None
        except RemoteProtocolError as fault:
            self.give_up(fault.message)
            return None
        self.query = query if sharpened is None else None
        return sharpened

    def give_up(self, reason: str) -> None:
        """End the query without its answer."""
        self.query, self.fault = None, reason
