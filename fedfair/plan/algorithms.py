"""The algorithms that a plan may name: which options each takes, and what each must reveal in a round.

Decides nothing about training. What an algorithm reveals is counted here, as data, so that
`docs/algorithms.md`, the refusal of a deployment and the summary of a plan say the same thing. A deployment
carries one weighted sum a round; everything else runs in simulation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from fedfair.errors import PlanError
from fedfair.plan.fields import Fault, PositiveFloat, Section

AlgorithmName = Literal["fedsrcvar", "fedavg", "afl"]


class OptionsSection(Section):
    """What only some algorithms take; each option is refused where it has no meaning."""

    adversary_learning_rate: PositiveFloat | None = Field(
        default=None,
        description="afl: step size of the adversary's weights, above 0; null takes learning_rate",
    )


@dataclass(frozen=True, slots=True)
class AlgorithmFacts:
    """What is known about an algorithm before any code of it runs.

    Attributes:
        title: its name in tables.
        minimises: what it minimises, in words.
        reveals: what must become known to whoever steers the training in a round, in words.
        numbers: how many numbers that is: a count for each term of `egress.TERMS`.
        about_one: those of them that each tell about one collaborator (or one group), not about a sum.
        secure: what masked sums can carry of it.
        deployed: whether a deployment can run it.
        centralised: whether it trains on pooled records, as a reference.
        one_step: whether it is defined for a single local step in a round only.
        options: which of `OptionsSection` it takes.
    """

    title: str
    minimises: str
    reveals: str
    numbers: Mapping[str, int]
    about_one: Mapping[str, int]
    secure: str
    deployed: bool = False
    centralised: bool = False
    one_step: bool = False
    options: tuple[str, ...] = ()


_MEAN = "the mean loss"

ALGORITHMS: Mapping[AlgorithmName, AlgorithmFacts] = {
    "fedsrcvar": AlgorithmFacts(
        title="FedSRCVaR",
        minimises="the mean loss of the worst group of a size, and of everybody",
        reveals="the sum of the weighted changes of model and threshold, and of the weights",
        numbers={"d": 1, "1": 2},
        about_one={},
        secure="everything",
        deployed=True,
    ),
    "fedavg": AlgorithmFacts(
        title="FedAvg",
        minimises=_MEAN,
        reveals="the sum of the weighted changes of the model, and of the weights",
        numbers={"d": 1, "1": 2},
        about_one={},
        secure="everything",
        deployed=True,
    ),
    "afl": AlgorithmFacts(
        title="AFL",
        minimises="the mean loss of the worst collaborator",
        reveals="the loss of every collaborator, and the weighted sum of their gradients",
        numbers={"d": 1, "K": 1},
        about_one={"K": 1},
        secure="the gradients; not the losses",
        one_step=True,
        options=("adversary_learning_rate",),
    ),
}


def check_deployable(algorithm: AlgorithmName) -> None:
    """Refuse a deployment of an algorithm that needs more than one weighted sum in a round.

    Raises:
        PlanError: the algorithm runs in simulation only; says what it would have to reveal.
    """
    facts = ALGORITHMS[algorithm]
    if not facts.deployed:
        raise PlanError(
            f"training.algorithm: {algorithm} is for simulation only: each round it must reveal {facts.reveals}",
            "run it with `fedfair simulate`, or deploy fedsrcvar or fedavg; see docs/algorithms.md",
        )


def option_faults(algorithm: AlgorithmName, options: OptionsSection) -> Iterator[Fault]:
    """Yield a fault for every option that is given and has no meaning for the algorithm."""
    for name, value in options:
        if value is not None and name not in ALGORITHMS[algorithm].options:
            takers = [other for other, facts in ALGORITHMS.items() if name in facts.options]
            yield Fault(
                ("options", name),
                f"has no meaning for {algorithm}",
                f"remove it; it is an option of {' and '.join(takers)}",
            )


def step_faults(algorithm: AlgorithmName, local_steps: int, local_epochs: int | None) -> Iterator[Fault]:
    """Yield a fault where an algorithm of one local step is asked for more of them."""
    if not ALGORITHMS[algorithm].one_step:
        return
    remedy = (
        "set local_steps: 1 and no local_epochs; drfa makes several steps"
        if algorithm == "afl"
        else ("set local_steps: 1 and no local_epochs")
    )
    for name, value in (("local_steps", local_steps), ("local_epochs", local_epochs)):
        if value is not None and not (name == "local_steps" and value == 1):
            yield Fault((name,), f"is {value}, but {algorithm} makes one local step in a round", remedy)
