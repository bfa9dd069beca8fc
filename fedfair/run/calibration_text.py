"""A calibration as the text that the file of a model carries; a and b are decimals, the same on every machine."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

from fedfair.aggregation.calibration import DIGITS, NOT_SAID, SCORES_ONLY, Calibration, ClassFit, Uncalibrated
from fedfair.aggregation.loss_histogram import SPLITS
from fedfair.aggregation.score_histogram import scored_classes

CALIBRATION_KEY, UNCALIBRATED_KEY = "calibration", "uncalibrated"
METHOD = "platt"
RECORDS = {"train": "training", "validation": "validation", "test": "test"}
UNSTATED = "nothing says how to calibrate them"


def calibration_fields(found: Calibration | Uncalibrated) -> dict[str, str]:
    """Return the words of a model's file; `parse_calibration` reads the same back."""
    if isinstance(found, Uncalibrated):
        return {UNCALIBRATED_KEY: found.reason} if found.reason else {}
    fits = {str(fit.wanted): [f"{value:.{DIGITS}g}" for value in (fit.slope, fit.intercept)] for fit in found.fits}
    told = {"method": METHOD, "split": found.split, "fits": fits}
    return {CALIBRATION_KEY: json.dumps(told, separators=(",", ":"))}


def parse_calibration(words: Mapping[str, str], classes: int) -> Calibration | Uncalibrated:
    """Return the calibration that a file's words tell of.

    Args:
        words: of the file.
        classes: how many the model has.

    Raises:
        ValueError, TypeError, KeyError: it is no calibration, or one of other classes.
    """
    text = words.get(CALIBRATION_KEY)
    if text is None:
        return Uncalibrated(words[UNCALIBRATED_KEY]) if UNCALIBRATED_KEY in words else NOT_SAID
    told = json.loads(text)
    fits = tuple(ClassFit(int(wanted), float(a), float(b)) for wanted, (a, b) in told["fits"].items())
    wanted = scored_classes(1 if classes == 2 else classes)
    sound = all(math.isfinite(fit.slope) and fit.slope >= 0.0 and math.isfinite(fit.intercept) for fit in fits)
    if told["method"] != METHOD or told["split"] not in SPLITS or not sound:
        raise ValueError(f"the calibration {text} is none that fedfair writes")
    if tuple(fit.wanted for fit in fits) != wanted:
        raise ValueError(f"the calibration is of {len(fits)} classes, and the model has {classes}")
    return Calibration(told["split"], fits)


def answer_words(found: Calibration | Uncalibrated) -> str:
    """Return what a model of classes returns: probabilities, by which records, or only scores, and why."""
    if isinstance(found, Calibration):
        return f"probabilities, calibrated on {RECORDS[found.split]} records"
    return f"{SCORES_ONLY}: {found.reason or UNSTATED}"
