"""Results for tests of what people read: small, made by hand, with all fields or the oldest ones."""

import math
from typing import Any

from fedfair.results.document import FORMAT, ResultDocument
from fedfair.results.parts import Timing
from fedfair.results.risks import SplitRisk

Json = dict[str, Any]


def small(
    train: SplitRisk | None = None,
    validation: SplitRisk | None = None,
    test: SplitRisk | None = None,
    threshold: float = 0.5,
) -> ResultDocument:
    """Return a result of these figures, with a run of two seconds for two classes."""
    return ResultDocument(
        format=FORMAT,
        plan_digest="sha256:" + "0" * 64,
        algorithm="fedsrcvar",
        rounds=20,
        threshold=threshold,
        uniform_floor=math.log(2),
        train=train,
        validation=validation,
        test=test,
        timing=Timing(seconds=2.0),
    )


def groups(worst: float, mean: float, upper: float | None = None) -> Json:
    return {
        "0.1": {"worst": worst, "best": 0.1, "disparity": worst - 0.1, "bound": [worst, upper or worst]},
        "0.3": {"worst": (worst + mean) / 2, "best": 0.1, "disparity": 0.1, "bound": [(worst + mean) / 2] * 2},
        "1.0": {"worst": mean, "best": None, "disparity": None, "bound": [mean, mean]},
    }


def oldest(algorithm: str = "fedsrcvar", worst: float = 0.5, mean: float = 0.2) -> Json:
    """Return a result as the first versions wrote it."""
    risk = {"n": 100, "mean": mean, "accuracy": 0.9, "by_group_size": groups(worst, mean)}
    return {
        "format": "fedfair/result/1",
        "plan_digest": "sha256:" + "0" * 64,
        "algorithm": algorithm,
        "rounds": 20,
        "threshold": 0.3,
        "objective": {"rcvar": 0.4, "smoothed": 0.5, "split": "train"},
        "uniform_floor": 0.6931,
        "train": risk,
        "validation": None,
        "test": None,
        "history": [
            {
                "round": number,
                "threshold": 1.0 - number / 40,
                "train": {"mean": 0.7, "worst": 0.9, "accuracy": 0.5},
            }
            for number in (0, 10, 20)
        ],
        "privacy": {"sample_level": None, "collaborator_level": None},
        "timing": {"seconds": 2.0, "rounds_per_second": 10.0},
        "versions": {"fedfair": "0.1.0", "torch": "2.13.0"},
    }


def complete(
    algorithm: str = "fedsrcvar", worst: float = 0.5, mean: float = 0.2, size: float = 0.1, tradeoff: float = 0.01
) -> Json:
    """Return a result with everything that a deployed run writes today."""
    past = {"mean": 0.7, "worst": 0.9, "accuracy": 0.5, "by_group_size": groups(0.9, 0.7)}
    return oldest(algorithm, worst, mean) | {
        "setting": "deployment",
        "plan": {
            "federation": "heart",
            "collaborators": 3,
            "worst_group_size": size,
            "tradeoff": tradeoff,
            "summary": [["federation", "'heart' of a, b, c"], ["learns", "a linear model"]],
        },
        "history": [{"round": number, "threshold": 0.5, "train": past} for number in (0, 10, 20)],
        "secure_aggregation": {
            "mode": "malicious",
            "colluders": 0,
            "masked": True,
            "guarantee": "an aggregator that may do anything learns one sum",
        },
        "timing": {
            "seconds": 100.0,
            "rounds_per_second": 0.2,
            "rounds": {
                "count": 20,
                "median": 0.012,
                "p90": 0.5,
                "longest": 130.0,
                "curve": [[10, 0.012], [20, 0.5]],
            },
        },
        "traffic": {
            "basis": "measured",
            "bytes_up": 2_000_000,
            "bytes_down": 1500,
            "per_round": {"bytes_up": 33_333.3, "bytes_down": 25.0},
        },
        "state": "finished",
        "outcome": "20 rounds are done",
    }
