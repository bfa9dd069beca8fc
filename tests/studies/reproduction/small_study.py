"""A study that needs no files and takes seconds: breast cancer at three collaborators."""

from __future__ import annotations

from pathlib import Path

from fedfair.studies.reproduction.methods import METHODS
from fedfair.studies.reproduction.study import Figure, Repeats, Size, Study, Values
from tests import plans

SIZE = Size(
    rounds=3,
    epoch_rounds=2,
    local_epochs=1,
    group_sizes=(0.1, 0.3),
    small_tradeoffs=(0.01, 0.05),
    tradeoffs=(0.01, 0.5),
    learning_rates=dict.fromkeys(METHODS, (0.1, 0.01)),
    answered=16,
    repeats=2,
)


def base(folder: Path) -> Values:  # noqa: ARG001
    return plans.stated(
        ["a", "b", "c"],
        task={
            "partition": {"scheme": "random"},
            "test_fraction": 0.5,
            "validation_fraction": 0.1,
            "standardize": "secure",
        },
        training={"batch_size": 16},
        evaluation={"every": 10**9},
    )


def study(*figures: Figure, methods: tuple[str, ...] = ("fedsrcvar", "fedavg")) -> Study:
    return Study(
        name="small",
        title="A small study of <three>",
        base=base,
        repeats=Repeats.FOLDS,
        figures=frozenset(figures),
        methods=methods,
        quick=SIZE,
        full=SIZE,
        stated=("Stated.",),
        chosen=("Chosen & open.",),
    )
