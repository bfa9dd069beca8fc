"""What this site has been asked about the losses of a model, so that no other question is answered later.

The steps of an exact evaluation narrow a few quantiles down. Free to choose, an aggregator could ask for any part
of the distribution of losses, as finely as it likes, again and again. So a site answers each step about one model
with one set of prefixes, in order, and every prefix must go on from one that it was asked before. That the same
answer is not masked a second time is the business of secure aggregation's own log. The record is on the disk
before an answer is computed, and survives restarts. The model is known by its vector, whatever the threshold: the
losses are the same.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from fedfair.errors import FedfairError
from fedfair.evaluation.exact_query import QueryStep
from fedfair.evaluation.radix import DIGIT_BITS, STEPS
from fedfair.wire.frames import SumStart

OWNER_ONLY = 0o600


class AnsweredQueries:
    """The record of one site under one plan.

    Args:
        path: its file; made by the first question.

    Raises:
        FedfairError: the file is damaged.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._answered: dict[tuple[str, int], tuple[int, ...]] = {}
        try:
            lines = path.read_text().splitlines() if path.exists() else []
            # What a crash cut off was never answered.
            complete = [json.loads(line) for line in lines if line.endswith("}")]
            for entry in complete:
                self._answered[entry["model"], entry["step"]] = tuple(entry["prefixes"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise FedfairError(
                f"{path} cannot be read as this site's record of questions: {error}",
                "copy it back from a backup; without it a site cannot know what it has answered",
            ) from error

    def objection(self, start: SumStart) -> str | None:
        """Return why a question must not be answered; where there is no reason, it is on the record from now on.

        Raises:
            OSError: the record cannot be written.
        """
        if start.query is None:
            return None
        model, step = start.model_sha256.hex(), start.query
        known = self._answered.get((model, step.number))
        if known is not None:
            return None if known == step.prefixes else f"step {step.number} about this model was answered before"
        if not self._goes_on(model, step):
            return f"step {step.number} does not go on from what was asked about this model before"
        self._append({"model": model, "step": step.number, "prefixes": list(step.prefixes)})
        self._answered[model, step.number] = step.prefixes
        return None

    def _goes_on(self, model: str, step: QueryStep) -> bool:
        if step.number == 1:
            return True
        before = self._answered.get((model, step.number - 1))
        if before is None:
            return False
        # Every step finds one more digit of a key; step 2 goes on from no digits at all.
        bits = DIGIT_BITS[step.number - 2]
        shorter = tuple(prefix >> bits for prefix in step.prefixes)
        return shorter == (before or (0,) * len(step.prefixes)) and step.number <= STEPS

    def _append(self, entry: dict[str, object]) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, OWNER_ONLY)
        with os.fdopen(descriptor, "a") as target:
            # A line that a crash cut off must not swallow this one.
            target.write("\n" + json.dumps(entry) + "\n")
            target.flush()
            os.fsync(target.fileno())
