"""A feature scaling as the text that the file of a model carries, bit for bit."""

from __future__ import annotations

import json

import numpy as np

from fedfair.aggregation.requests import FeatureScaling

SCALING_KEY = "feature_scaling"


def scaling_text(scaling: FeatureScaling) -> str:
    """Return a scaling as JSON; `parse_scaling` reads the same numbers back."""
    columns = {"mean": scaling.mean.tolist(), "scale": scaling.scale.tolist()}
    return json.dumps(columns, separators=(",", ":"))


def parse_scaling(text: str | None, numeric: int | None) -> FeatureScaling | None:
    """Return the scaling of a text; None where there is none.

    Args:
        text: of `scaling_text`, or None.
        numeric: how many numeric columns there are; None where unknown.

    Raises:
        ValueError: it is no scaling of so many columns.
        KeyError, TypeError: it is no scaling at all.
    """
    if text is None:
        return None
    columns = json.loads(text)
    mean, scale = (np.array(columns[key], np.float64) for key in ("mean", "scale"))
    wanted = (mean.size if numeric is None else numeric,)
    sound = mean.shape == scale.shape == wanted and np.isfinite(mean).all() and np.isfinite(scale).all()
    if not sound or not (scale > 0.0).all():
        raise ValueError(f"the scaling is not of {wanted[0]} numeric columns, or not positive")
    return FeatureScaling(mean, scale)
