"""The compared methods: how each is written as a plan, and which of the comparison's settings it knows.

FedAvg makes `local_epochs` passes over its records in a round, as the paper runs it; every other method makes one
step a round. The centralised references see the pooled records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fedfair.experiments.reproduction.study import Size, Study, Values

EPOCH_BATCH = 128
"""FedAvg's batches, as the paper states them."""

ADVERSARY_RATE = 0.001
"""Step size of every adversary, as the paper states it."""


@dataclass(frozen=True, slots=True)
class Method:
    """One method of the comparison.

    Attributes:
        name: its name in plans and results.
        label: its name in figures.
        knows_group_size: it is trained for a group size.
        has_tradeoff: it has a tradeoff between the worst group and the mean.
        knows_groups: whether it knows the groups.
        has_adversary: an adversary looks at all losses.
        adversary_steps: that adversary makes steps, instead of answering at once.
        by_epochs: it makes passes over the records instead of steps.
    """

    name: str
    label: str
    knows_group_size: bool = False
    has_tradeoff: bool = False
    knows_groups: bool = False
    has_adversary: bool = False
    adversary_steps: bool = False
    by_epochs: bool = False

    def changes(self, study: Study, size: Size, group_size: float, tradeoff: float | None) -> Values:
        """Return what this method changes in a study's base plan.

        Args:
            study: the study.
            size: how much of it is run.
            group_size: what is trained for, where the method knows it.
            tradeoff: its tradeoff, where it has one.
        """
        training: dict[str, object] = {"algorithm": self.name, "rounds": size.rounds}
        if self.by_epochs:
            training |= {"rounds": size.epoch_rounds, "local_epochs": size.local_epochs, "batch_size": EPOCH_BATCH}
        options: dict[str, object] = {}
        if self.has_adversary:
            # The theory of these methods speaks of the mean of the models; the last one swings with the adversary.
            training["output"] = "tail"
            options["adversary_interval"] = size.adversary_interval
        if self.adversary_steps:
            options["adversary_learning_rate"] = ADVERSARY_RATE
        if self.knows_groups and study.group_column is not None:
            options["group_column"] = study.group_column
        training["options"] = options
        objective: dict[str, object] = {}
        if self.knows_group_size:
            objective["worst_group_size"] = group_size
        if self.has_tradeoff and tradeoff is not None:
            objective["tradeoff"] = tradeoff
        return {"training": training, "objective": objective}


METHODS: Mapping[str, Method] = {
    method.name: method
    for method in (
        Method("fedsrcvar", "FedSRCVaR", knows_group_size=True, has_tradeoff=True),
        Method("fedavg", "FedAvg", by_epochs=True),
        Method("afl", "AFL", has_adversary=True, adversary_steps=True),
        Method(
            "fedminmax",
            "FedMinMax (told the groups)",
            knows_groups=True,
            has_adversary=True,
            adversary_steps=True,
        ),
        Method("erm", "ERM (central)"),
        Method("dro", "DRO (central)", knows_group_size=True, has_adversary=True),
        Method(
            "bpf",
            "BPF (central)",
            knows_group_size=True,
            has_tradeoff=True,
            has_adversary=True,
            adversary_steps=True,
        ),
    )
}
"""By name, in the order of the legend."""
