"""What a model's file says of its answers: how scores become probabilities, and how sets are made of answers.

Both are made of the sums of an evaluation of this very model, by whoever holds them.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedfair.aggregation.calibration import NOT_SAID, Calibration, Uncalibrated
from fedfair.aggregation.evaluation_file import EvaluatedModel
from fedfair.aggregation.evaluator import Evaluator
from fedfair.conformal.prediction_sets import NOTHING_SAID, NoSets, PredictionSets
from fedfair.conformal.set_maker import SetMaker

NO_SUMS = "no sums of an evaluation of this very model are kept"


@dataclass(frozen=True, slots=True)
class AnswerTerms:
    """What is said of a model's answers.

    Attributes:
        calibration: what makes probabilities of scores, or why nothing does.
        sets: how sets are made of answers, or why none are.
    """

    calibration: Calibration | Uncalibrated = NOT_SAID
    sets: PredictionSets | NoSets = NOTHING_SAID


UNSAID = AnswerTerms()


def answer_terms(evaluator: Evaluator, maker: SetMaker, sums: EvaluatedModel | None) -> AnswerTerms:
    """Return what an evaluation says of its model's answers.

    Args:
        evaluator: of the plan.
        maker: of its prediction sets.
        sums: of the evaluation; None where they are not kept.
    """
    if sums is None:
        return AnswerTerms(Uncalibrated(evaluator.uncalibrated or NO_SUMS), NoSets(maker.without or NO_SUMS))
    return AnswerTerms(evaluator.calibration(sums.header, sums.replaced), maker.sets(sums))
