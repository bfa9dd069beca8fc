"""The references in the state of a run: each of their sums moves them, and the best are kept. No torch."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from fedfair.aggregation.reference import (
    MAX_REFERENCE_LOSS,
    References,
    first_references,
    reference_header,
    reference_shape,
    stepped_references,
)
from fedfair.aggregation.running_sum import Totals
from fedfair.errors import LocalProtocolError, RemoteProtocolError
from fedfair.plan.derived import reference_of
from fedfair.run.opened_sum import Applied, RunSetting
from fedfair.run.progress import is_at
from fedfair.run.state import RunState
from fedfair.statistics.statistic import When


class ReferenceRule:
    """The rule of the references in the runs of a plan.

    Args:
        setting: of the run.
    """

    def __init__(self, setting: RunSetting) -> None:
        self._stated = reference_of(setting.plan)
        self._layout = reference_header(setting.plan, setting.schema)
        shape = reference_shape(setting.plan, setting.schema)
        self._length = shape.folds * shape.dimension
        self._untrained = first_references(setting.plan, setting.schema).present

    def apply(self, state: RunState, totals: Totals, members: Collection[str]) -> Applied:
        """Take a step with the references.

        Raises:
            RemoteProtocolError: as `stepped_references`; or they are done, and no sum has moved them, or their
                losses are above all that counts.
        """
        del members
        if state.references is None:
            raise LocalProtocolError("a run without references has no sum of them")
        stepped = stepped_references(state.references, totals, self._layout)
        if stepped.are_done(self._stated) and not stepped.have_learnt:
            self._check_untrained(stepped)
        return Applied(replace(state, references=stepped))

    def _check_untrained(self, references: References) -> None:
        """Refuse references that failed; that nothing could be learnt is no failure.

        Then the untrained ones stay, who name equal chances, or the mean of a number. The excess over them is
        least for a model that says so too.
        """
        fault = ""
        if references.tell_nothing:
            fault = f"their losses on records that they have not seen are {MAX_REFERENCE_LOSS:g} or more each"
        elif np.array_equal(references.present, self._untrained):
            fault = "not one weight has moved: every step was too small to count, or no finite number"
        if fault:
            raise RemoteProtocolError(
                f"the references have learnt nothing in {references.sums} sums: {fault}",
                "set task.standardize: secure where columns or targets are far from 1, change "
                "objective.reference.learning_rate, or set objective.measure: loss",
            )

    def may_be(self, state: RunState) -> bool:
        """Return whether the references can be, at the stage of a state."""
        held = state.references
        if held is None or not held.present.shape == held.best.shape == (self._length,):
            return False
        if self._stated.run is not None:
            return held.best_at <= held.sums
        if not held.best_at <= held.sums <= self._stated.rounds:
            return False
        if held.sums == 0:
            # So it is also in a run that evaluates a saved model, and judges nothing by references.
            return True
        is_trained = held.are_done(self._stated) != is_at(state.stage, When.REFERENCE)
        return is_trained and not is_at(state.stage, When.FIRST, When.SCALING)


rule = ReferenceRule
