"""The algorithms that a plan may name: which options each takes, and what each must reveal in a round.

Decides nothing about training. What an algorithm reveals is counted here, as data, so that
`docs/explain/algorithms.md`, the refusal of a deployment and the summary of a plan say the same thing. A
deployment carries one weighted sum a round; everything else runs in simulation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from pydantic import Field

from fedfair.errors import PlanError
from fedfair.plan.fields import (
    Disclosure,
    Fault,
    GroupSize,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    Section,
    Text,
)

AlgorithmName = Literal[
    "fedsrcvar",
    "fedavg",
    "afl",
    "drfa",
    "fedminmax",
    "qffl",
    "deltafl",
    "fedmgda",
    "localbpf",
    "erm",
    "dro",
    "bpf",
]


class OptionsSection(Section):
    """Options of single algorithms; each is refused where it has no meaning."""

    adversary_learning_rate: PositiveFloat | None = None
    """afl, drfa, fedminmax, bpf: step size of the adversary's weights, above 0; null takes learning_rate"""

    adversary_interval: PositiveInt | None = None
    """afl, fedminmax, dro, bpf: rounds between the adversary's looks at all losses, at least 1; its step grows by
    this factor; null takes 1"""

    drawn_collaborators: PositiveInt | None = None
    """drfa: collaborators drawn in a round, at least 1; null draws as many as exist"""

    group_column: Text | None = None
    """fedminmax: column whose values are the groups, in a deployment one of csv.categorical; null takes the
    label"""

    loss_power: NonNegativeFloat | None = None
    """qffl: power to which losses weigh (q), at least 0; null takes 1"""

    worst_share: GroupSize | None = None
    """deltafl: share of the collaborators' weight that is averaged, above 0 to 1; null takes
    objective.worst_group_size"""

    weight_range: float | None = Field(default=None, ge=0, le=1)
    """fedmgda: how far a weight may be from the collaborator's share, 0 to 1; null takes 1"""

    server_learning_rate: PositiveFloat | None = None
    """fedmgda: length of a round's step, above 0; null takes learning_rate"""

    divergence: Literal["cvar", "chi2"] | None = None
    """dro: cvar (the worst group counts) or chi2; null takes cvar"""

    best_response: Literal["all", "batch"] | None = None
    """dro, bpf: whose losses the adversary answers exactly, those of all training records or of the step's own
    batch; null takes all for dro, and steps of the adversary for bpf"""


@dataclass(frozen=True, slots=True)
class AlgorithmFacts:
    """The facts about an algorithm, known before any code of it runs.

    Attributes:
        title: its name in tables.
        minimises: what it minimises, in words; {worst}, {rest} and {mean} stand for shares of the objective.
        reveals: what the aggregator, which steers the training, must learn in a round, in words.
        numbers: how many numbers that is: a count for each term of `disclosure_table.TERMS`.
        about_one: those of them that each tell about one collaborator (or one group), not about a sum.
        masked: what masked sums can carry of it.
        kinds: the same in the words of a site's policy (`reveals`).
        deployed: whether a deployment can run it.
        centralised: whether it trains on pooled records, as a reference.
        mean_of_changes: whether a round moves the model by the mean of the sites' changes and by nothing else.
        threshold: whether local steps follow the tail of the losses above a threshold that moves.
        site_thresholds: whether every site keeps a threshold of its own from round to round.
        work: what a round's local work may be.
        options: which of `OptionsSection` it takes.
    """

    title: str
    minimises: str
    reveals: str
    numbers: Mapping[str, int]
    kinds: tuple[Disclosure, ...]
    about_one: Mapping[str, int] = field(default_factory=dict)
    masked: str = "everything"
    deployed: bool = False
    centralised: bool = False
    mean_of_changes: bool = False
    threshold: bool = False
    site_thresholds: bool = False
    work: Literal["one step", "steps", "any"] = "any"
    options: tuple[str, ...] = ()


_MEAN = "the mean loss"
_TAIL = "{rest} the mean loss of the worst {worst} plus {mean} the mean loss of everybody"
_ADVERSARY = ("adversary_learning_rate", "adversary_interval")

ALGORITHMS: Mapping[AlgorithmName, AlgorithmFacts] = {
    "fedsrcvar": AlgorithmFacts(
        title="FedSRCVaR",
        minimises=_TAIL,
        reveals="the sum of the weighted changes of model and threshold, and of the weights",
        numbers={"d": 1, "1": 2},
        kinds=("update-sums",),
        deployed=True,
        threshold=True,
        mean_of_changes=True,
    ),
    "fedavg": AlgorithmFacts(
        title="FedAvg",
        minimises=_MEAN,
        reveals="the same sums; the threshold does not move",
        numbers={"d": 1, "1": 2},
        kinds=("update-sums",),
        deployed=True,
        mean_of_changes=True,
    ),
    "afl": AlgorithmFacts(
        title="AFL",
        minimises="the mean loss of the worst collaborator",
        reveals="the loss of every collaborator, and the weighted sum of their gradients",
        numbers={"d": 1, "K": 1},
        about_one={"K": 1},
        masked="the gradients, not the losses",
        kinds=("site-losses", "update-sums"),
        work="one step",
        options=_ADVERSARY,
    ),
    "drfa": AlgorithmFacts(
        title="DRFA",
        minimises="the mean loss of the worst collaborator",
        reveals="the losses of the collaborators that are drawn, and two sums of models",
        numbers={"d": 2, "m": 1},
        about_one={"m": 1},
        masked="the models, not the losses",
        kinds=("site-losses", "update-sums"),
        work="steps",
        options=(_ADVERSARY[0], "drawn_collaborators"),
    ),
    "fedminmax": AlgorithmFacts(
        title="FedMinMax",
        minimises="the mean loss of the worst group that is known by name",
        reveals="the loss and the number of records of every group over everybody, and the sums of the weighted "
        "changes and of the weights; to each site the group of every record",
        numbers={"d": 1, "G": 2, "1": 2},
        about_one={"G": 2},
        kinds=("group-losses", "update-sums"),
        deployed=True,
        work="one step",
        options=(*_ADVERSARY, "group_column"),
    ),
    "qffl": AlgorithmFacts(
        title="q-FFL",
        minimises="the mean of a power of the collaborators' mean losses",
        reveals="the sum of the changes, weighed by powers of the losses, and the sums of the step's curvatures "
        "and of the weights; the threshold does not move",
        numbers={"d": 1, "1": 3},
        kinds=("update-sums",),
        deployed=True,
        options=("loss_power",),
    ),
    "deltafl": AlgorithmFacts(
        title="Delta-FL",
        minimises="the mean loss of the worst share of the collaborators",
        reveals="the loss of every collaborator, and the sum of the changes of the worst",
        numbers={"d": 1, "K": 1},
        about_one={"K": 1},
        masked="the changes, not the losses",
        kinds=("site-losses", "update-sums"),
        options=("worst_share",),
    ),
    "fedmgda": AlgorithmFacts(
        title="FedMGDA+",
        minimises="every collaborator's mean loss at once, as far as one direction can",
        reveals="the change of every collaborator by itself",
        numbers={"K d": 1},
        about_one={"K d": 1},
        masked="nothing",
        kinds=("site-updates",),
        options=("weight_range", "server_learning_rate"),
    ),
    "localbpf": AlgorithmFacts(
        title="local BPF",
        minimises=_TAIL + ", each collaborator's worst by itself",
        reveals="the sum of the weighted changes of the model, and the sums of the weighted thresholds and of the "
        "weights",
        numbers={"d": 1, "1": 2},
        kinds=("update-sums",),
        deployed=True,
        threshold=True,
        site_thresholds=True,
    ),
    "erm": AlgorithmFacts(
        title="ERM",
        minimises=_MEAN,
        reveals="every record, once",
        numbers={"n x": 1},
        about_one={"n x": 1},
        masked="nothing",
        kinds=("records",),
        centralised=True,
        mean_of_changes=True,
    ),
    "dro": AlgorithmFacts(
        title="DRO",
        minimises="the mean loss of the worst {worst}",
        reveals="every record, once",
        numbers={"n x": 1},
        about_one={"n x": 1},
        masked="nothing",
        kinds=("records",),
        centralised=True,
        options=("divergence", _ADVERSARY[1], "best_response"),
    ),
    "bpf": AlgorithmFacts(
        title="BPF",
        minimises=_TAIL,
        reveals="every record, once",
        numbers={"n x": 1},
        about_one={"n x": 1},
        masked="nothing",
        kinds=("records",),
        centralised=True,
        options=(*_ADVERSARY, "best_response"),
    ),
}


def check_deployable(algorithm: AlgorithmName) -> None:
    """Refuse a deployment of what no sum of this version's messages carries.

    Raises:
        PlanError: the algorithm runs in simulation only; says what it would have to reveal.
    """
    facts = ALGORITHMS[algorithm]
    if facts.deployed:
        return
    when = "it needs" if facts.centralised else "each round it must reveal"
    *others, last = (name for name, each in ALGORITHMS.items() if each.deployed)
    raise PlanError(
        f"training.algorithm: {algorithm} is for simulation only: {when} {facts.reveals}",
        f"run it with `fedfair simulate`, or deploy {', '.join(others)} or {last}; see docs/explain/algorithms.md",
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
    yield from _best_response_faults(algorithm, options)


def _best_response_faults(algorithm: AlgorithmName, options: OptionsSection) -> Iterator[Fault]:
    """Yield a fault for every option of an adversary that a best response leaves nothing to decide."""
    if options.best_response is None:
        return
    if algorithm == "bpf" and options.adversary_learning_rate is not None:
        message = "has no meaning where the adversary answers at once (best_response)"
        yield Fault(("options", "adversary_learning_rate"), message, "remove one of the two")
    if options.best_response == "batch" and options.adversary_interval is not None:
        message = "has no meaning where the adversary answers every batch (best_response: batch)"
        yield Fault(("options", "adversary_interval"), message, "remove it, or use best_response: all")
    if options.best_response == "batch" and options.divergence == "chi2":
        message = "is chi2, whose answer is computed for all records only"
        yield Fault(("options", "divergence"), message, "use best_response: all, or divergence: cvar")


def step_faults(algorithm: AlgorithmName, local_steps: int, local_epochs: int | None) -> Iterator[Fault]:
    """Yield a fault where an algorithm is asked for local work that it does not define."""
    work = ALGORITHMS[algorithm].work
    if work == "one step" and local_steps > 1:
        message = f"is {local_steps}, but {algorithm} makes one local step in a round"
        yield Fault(("local_steps",), message, "set local_steps: 1; drfa is for several steps")
    if work != "any" and local_epochs is not None:
        message = f"is {local_epochs}, but a round of {algorithm} is counted in local steps"
        yield Fault(("local_epochs",), message, "state local_steps")


def kept_faults(algorithm: AlgorithmName, output: str, patience: int | None, *, variates: bool) -> Iterator[Fault]:
    """Yield a fault where sites cannot keep a part of the model between rounds, or not of the one returned."""
    place = ("parameters", "keep")
    able = [name for name, facts in ALGORITHMS.items() if facts.deployed and facts.mean_of_changes]
    if algorithm not in able:
        yield Fault(place, f"is stated, but {algorithm} keeps no parts at sites", f"use {' or '.join(able)}")
    if variates:
        yield Fault(
            place,
            "is stated beside control_variates: true, which corrects what travels for what differs by site",
            "state one of them",
        )
    if output in {"average", "tail"} or patience is not None:
        stated = f"output: {output}" if patience is None else f"patience: {patience}"
        yield Fault(
            place,
            f"is stated beside {stated}, but sites have their parts of the last round, and of no other",
            "use output: last, without patience",
        )


def variate_faults(algorithm: AlgorithmName, local_steps: int, local_epochs: int | None) -> Iterator[Fault]:
    """Yield a fault where control variates cannot correct the local steps, or have nothing to correct."""
    place = ("control_variates",)
    able = [name for name, facts in ALGORITHMS.items() if facts.deployed and facts.mean_of_changes]
    if algorithm not in able:
        yield Fault(
            place,
            f"is true, but {algorithm} has none",
            f"remove it; {' and '.join(able)} can have control variates",
        )
    if local_epochs is not None:
        yield Fault(
            place,
            "is true, but local_epochs makes a number of steps that differs by collaborator, so that the sum of "
            "the changes does not tell the sum of the variates",
            "state local_steps, which every site makes, in place of local_epochs",
        )
    elif local_steps == 1:
        message = "is true, but with local_steps: 1 a correction changes no sum over all sites"
        yield Fault(place, message, "remove it, or set local_steps above 1")
