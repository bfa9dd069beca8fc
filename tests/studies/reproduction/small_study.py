"""A study that needs no files and takes seconds: breast cancer at three collaborators."""

from pathlib import Path

from fedfair.studies.reproduction.study import Figure, Repeats, Size, Study, Values
from tests import plans

SIZE = Size(
    rounds=3, epoch_rounds=2, local_epochs=1, group_sizes=(0.1, 0.3), small_tradeoffs=(0.01, 0.05),
    tradeoffs=(0.01, 0.5), rates=dict.fromkeys(("tails", "means", "epochs"), (0.1, 0.01)), answered=16, repeats=2,
)  # fmt: skip


class SmallStudy(Study):
    """The study of a plan that no file states."""

    def base(self, folder: Path) -> Values:  # noqa: ARG002
        return plans.stated(
            list(self.collaborators),
            task={
                "partition": {"scheme": "random"}, "test_fraction": 0.5, "validation_fraction": 0.1,
                "standardize": "secure",
            },
            training={"batch_size": self.batch_size},
            evaluation={"every": 10**9},
        )  # fmt: skip


def study(*figures: Figure, methods: tuple[str, ...] = ("fedsrcvar", "fedavg")) -> Study:
    return SmallStudy(
        name="small", data_set="none", collaborators=("a", "b", "c"), data={}, split={}, model={}, batch_size=16,
        title="A small study of <three>", repeats=Repeats.FOLDS, figures=frozenset(figures), methods=methods,
        quick=SIZE, full=SIZE, stated=("Stated.",), chosen=("Chosen & open.",),
    )  # fmt: skip
