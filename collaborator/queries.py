"""What this site has been asked about the losses of a model, so that no other question is answered later.

The steps of an exact evaluation narrow a few quantiles down. Free to choose, an aggregator could ask for any part
of the distribution of losses, as finely as it likes, again and again. So a site answers each step about one model
with one set of prefixes, in order, and every prefix must go on from one that it was asked before. That the same
answer is not masked a second time is the business of secure aggregation's own log. The record is on the disk
before an answer is computed, and survives restarts. The model is known by its vector, whatever the threshold: the
losses are the same.
"""

from __future__ import annotations

from pathlib import Path

from collaborator.json_lines import JsonLines
from collaborator.reluctance import Reluctance
from fedfair.evaluation.exact_query import QueryStep
from fedfair.evaluation.radix import DIGIT_BITS, STEPS
from fedfair.wire.frames import SumStart


class AnsweredQueries:
    """The record of one site under one plan.

    Args:
        path: its file; made by the first question.

    Raises:
        FedfairError: the file is damaged.
    """

    def __init__(self, path: Path) -> None:
        self._file = JsonLines(path, "this site's record of questions")
        self._answered: dict[tuple[str, int], tuple[int, ...]] = {}
        for entry in self._file.read():
            try:
                self._answered[entry["model"], entry["step"]] = tuple(entry["prefixes"])  # type: ignore[index,arg-type]  # what does not fit is the fault
            except (KeyError, TypeError) as error:
                raise self._file.damaged(error) from error

    def objection(self, start: SumStart) -> Reluctance | None:
        """Return why a question must not be answered; where there is no reason, it is on the record from now on.

        Raises:
            OSError: the record cannot be written.
        """
        if start.query is None:
            return None
        model, step = start.model_sha256.hex(), start.query
        known = self._answered.get((model, step.number))
        if known is not None:
            return None if known == step.prefixes else _against(step, "about this model was answered before")
        if not self._goes_on(model, step):
            return _against(step, "does not go on from what was asked about this model before")
        self._file.append({"model": model, "step": step.number, "prefixes": list(step.prefixes)})
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


def _against(step: QueryStep, words: str) -> Reluctance:
    reason = f"step {step.number} {words}"
    return Reluctance(reason, "exact-evaluation", f"step {step.number}", "one query about a model, in order")
