"""What the server makes of totals that every site has added noise to, before it believes them.

Decides which totals are brought back to what some records could have; how is said in `evaluation.noised` and in
`standardisation`. Training totals need none of it. No torch: the aggregator runs this.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from fedfair.evaluation.loss_sums import HistogramSpec
from fedfair.evaluation.noised import possible_header
from fedfair.learning.data.dataset import FeatureSchema
from fedfair.learning.exchange import histogram_spec
from fedfair.plan.purpose import Purpose
from fedfair.plan.schema import Plan
from fedfair.sums.feature_moments import moments_layout, noise_deviation, possible_sums
from fedfair.sums.running import Totals


@dataclass(frozen=True, slots=True)
class NoisedTotals:
    """How the totals of a plan with noise are read.

    Attributes:
        histogram: of the plan.
        classes: how many there are.
        column_deviation: standard deviation of one site's noise on its column sums, in units of the columns.
    """

    histogram: HistogramSpec
    classes: int
    column_deviation: float

    def possible(self, totals: Totals, purpose: Purpose) -> Totals:
        """Return totals that some records could have, near the noised ones."""
        if purpose is Purpose.EVALUATION:
            return replace(totals, header=possible_header(totals.header, self.histogram, self.classes))
        if purpose is Purpose.STANDARDISATION:
            deviation = self.column_deviation * math.sqrt(totals.contributors)
            return replace(totals, header=possible_sums(totals.header, deviation))
        return totals


def noised_totals(plan: Plan, schema: FeatureSchema) -> NoisedTotals | None:
    """Return how the plan's totals are read; None where they carry no noise of sites."""
    asked = plan.privacy.sample_level
    if asked is None:
        return None
    released = int(np.count_nonzero(~moments_layout(len(schema.numeric)).counts(noised=True)))
    deviation = noise_deviation(released, asked.standardisation_noise_multiplier)
    return NoisedTotals(histogram_spec(plan, schema), schema.classes, deviation)
