"""The prediction sets of one model as a value: the threshold, the records behind it, and what it promises.

Decides what is in a model's file about sets, and the sentences about them. `set_maker.py` finds the threshold.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from fedfair.conformal.class_sets import ScoredAnswers
from fedfair.conformal.intervals import reach
from fedfair.conformal.promise import MILLION, Promise
from fedfair.plan.losses import Loss, has_classes

SETS_KEY, NO_SETS_KEY = "prediction_sets", "no_prediction_sets"

UNSTATED = "its file does not have any"

SetKind: TypeAlias = Literal["classes", "interval"]


@dataclass(frozen=True, slots=True)
class PredictionSets:
    """The sets of a model's answers.

    Attributes:
        kind: classes, or an interval around a number.
        promise: what they keep.
        split: the held-out records that the threshold is from: test or validation.
        records: how many they are.
        bound: the least score of a class in a set, or the greatest loss of a number in an interval.
    """

    kind: SetKind
    promise: Promise
    split: str
    records: int
    bound: float

    @property
    def missed_at_most(self) -> float:
        """The share of people whom these sets miss, at most, with the promise's confidence."""
        return self.promise.missed_at_most(self.records)

    @property
    def words(self) -> str:
        """The promise in words."""
        stated = self.promise
        what = "sets of classes" if self.kind == "classes" else "intervals"
        return (
            f"{what} that miss at most {stated.missed:.3g} of any group of a share of {stated.group_size:.3g} or "
            f"more, on average over draws of records; with {stated.confidence:.3g} confidence at most "
            f"{self.missed_at_most:.3g} of all people; from {self.records} {self.split} records"
        )


@dataclass(frozen=True, slots=True)
class NoSets:
    """The lack of sets.

    Attributes:
        reason: why there are none, as the end of a sentence; empty where unstated.
    """

    reason: str = ""


NOTHING_SAID = NoSets()


def set_fields(found: PredictionSets | NoSets) -> dict[str, str]:
    """Return the words of a model's file; `parse_sets` reads the same back."""
    if isinstance(found, NoSets):
        return {NO_SETS_KEY: found.reason} if found.reason else {}
    stated = found.promise
    told = {
        "kind": found.kind,
        "split": found.split,
        "records": found.records,
        "group_size": stated.group_size,
        "missed": stated.missed,
        "confidence": stated.confidence,
        "missed_of_all": str(float(stated.share)),
        "missed_of_all_at_most": str(found.missed_at_most),
        "bound": repr(found.bound),
    }
    return {SETS_KEY: json.dumps(told, separators=(",", ":"))}


def parse_sets(words: Mapping[str, str], loss: Loss, columns: int) -> PredictionSets | NoSets:
    """Return the sets that a file's words tell of.

    Args:
        words: of the file.
        loss: that the model was trained by.
        columns: how many histograms of scores it has: 1 for two classes, 0 without classes.

    Raises:
        ValueError, TypeError, KeyError: they are no sets, those of another kind of model, or promise what so many
            records do not.
    """
    text = words.get(SETS_KEY)
    if text is None:
        return NoSets(words[NO_SETS_KEY]) if NO_SETS_KEY in words else NOTHING_SAID
    told = json.loads(text)
    promise = Promise(*(float(told[name]) for name in ("group_size", "missed", "confidence")))
    found = PredictionSets(told["kind"], promise, told["split"], int(told["records"]), float(told["bound"]))
    fault = _fault(found, told, loss, columns)
    if fault:
        raise ValueError(f"the prediction sets {text} are none that fedfair writes: {fault}")
    return found


def _fault(found: PredictionSets, told: Mapping[str, str], loss: Loss, columns: int) -> str:
    """Return what is wrong with sets from a file; empty where nothing is."""
    if found.kind != ("classes" if has_classes(loss) else "interval"):
        return f"the model's loss is the {loss.title}"
    if found.split not in {"validation", "test"}:
        return f"{found.split} records are not held out"
    if found.records < 1 or found.promise.allowed(found.records) < 1:
        return f"{found.records} records do not keep the promise"
    stated = float(told["missed_of_all"]), float(told["missed_of_all_at_most"])
    if stated[0] != float(found.promise.share) or abs(stated[1] - found.missed_at_most) > 1.5 / MILLION:
        return "the shares that are missed do not follow from it"
    if found.kind == "classes":
        ScoredAnswers(columns).missed(found.bound)
        return ""
    sound = math.isfinite(found.bound) and found.bound > 0.0 and math.isfinite(sum(reach(loss, found.bound)))
    return "" if sound else "no interval"


def set_words(found: PredictionSets | NoSets) -> str:
    """Return the sets in words, or why there are none."""
    return found.words if isinstance(found, PredictionSets) else f"none: {found.reason or UNSTATED}"
