"""The sections of a plan: which keys each has, their types, ranges and defaults.

A section checks itself. What one section means for another is checked in `schema.py`, where they come together.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, field_validator

from fedfair.plan.algorithms import (
    ALGORITHMS,
    AlgorithmName,
    OptionsSection,
    kept_faults,
    option_faults,
    step_faults,
    variate_faults,
)
from fedfair.plan.fields import (
    MAX_AUDITED_SLICES,
    BatchSize,
    Clip,
    Device,
    Digest,
    Fault,
    GroupSize,
    Host,
    Items,
    NameOfFederation,
    ParticipantName,
    PositiveFloat,
    PositiveInt,
    Section,
    Text,
    ThresholdInit,
    repeated,
)
from fedfair.plan.initial import InitialSection
from fedfair.plan.name_ranges import written_out
from fedfair.plan.parameters import ParametersSection
from fedfair.plan.public_keys import parse_public_key

MAX_EXACT_SIZES = 19


"""Sizes of an exact evaluation beside that of the objective; one masked header has no room for more."""


MAX_COLLABORATORS = 100_000


"""For simulations; how many may mask a sum together is limited by `secagg.params`."""


MAX_SITE_MEANS = 1000


"""Sites whose own means a plan may publish: their rows take 12000 of the 65536 words that a masked header may
have, and the finest histogram (4096 bins) with three matrices of 64 classes takes 49173."""


MAX_SITE_WEIGHT = 1e12


"""The largest weight of a site in a population, in whatever unit the plan has."""


MAX_SECONDS = 30 * 24 * 3600


"""The longest patience that a plan may ask for: thirty days."""


class AggregatorAddress(Section):
    """Where collaborators connect to."""

    host: Host = "localhost"
    """host name or IP address of the aggregator"""

    port: int = Field(default=8443, ge=1, le=65535)
    """TCP port, 1 to 65535"""


class FederationSection(Section):
    """Who takes part, and how long they wait for each other."""

    name: NameOfFederation
    """name of the federation: 1 to 40 of a-z, 0-9 and '-'"""

    aggregator: AggregatorAddress = AggregatorAddress()
    """where collaborators connect to: {host: ..., port: ...}"""

    collaborators: Items[ParticipantName] = Field(min_length=1, max_length=MAX_COLLABORATORS)
    """names of the collaborators, each once, 1 to 100000; "site-{1..1000}" stands for 1000 of them"""

    roster: dict[str, str] = Field(default={})
    """the Ed25519 signing key of each collaborator, as ed25519:<base64>; or in roster.yaml beside the plan"""

    min_collaborators: PositiveInt | None = None
    """how many must contribute to every sum, 1 to all; null means all"""

    round_deadline_seconds: PositiveInt = Field(default=600, le=MAX_SECONDS)
    """how long a sum waits for contributions, in seconds"""

    join_deadline_seconds: PositiveInt = Field(default=600, le=MAX_SECONDS)
    """how long the start waits for all collaborators, in seconds; then min_collaborators suffice"""

    reconnect_grace_seconds: int = Field(default=15, ge=0, le=MAX_SECONDS)
    """how long a lost connection may take to return, in seconds"""

    max_attempts: PositiveInt = Field(default=3, le=100)
    """how often a sum is tried before the run is given up, 1 to 100"""

    @field_validator("collaborators", mode="before")
    @classmethod
    def _write_out(cls, names: object) -> object:
        return written_out(names, MAX_COLLABORATORS)

    def faults(self) -> Iterator[Fault]:
        """Yield every rule of its own that the section breaks."""
        for index, name in repeated(self.collaborators):
            yield Fault(("collaborators", index), f"{name!r} is listed twice", "remove one of them")
        count = len(self.collaborators)
        if self.min_collaborators is not None and self.min_collaborators > count:
            yield Fault(
                ("min_collaborators",),
                f"is {self.min_collaborators}, but there are only {count} collaborators",
                f"use 1 to {count}, or null for all",
            )
        yield from self._roster_faults()

    def _roster_faults(self) -> Iterator[Fault]:
        owners: dict[bytes, str] = {}
        for name, text in self.roster.items():
            if name not in self.collaborators:
                known = ", ".join(self.collaborators)
                yield Fault(("roster", name), f"{name!r} is no collaborator", f"the collaborators are {known}")
            try:
                key = parse_public_key(text)
            except ValueError as error:
                yield Fault(("roster", name), str(error), "run `fedfair plan enroll` with the site's request")
                continue
            if key in owners:
                message = f"{name!r} has the same key as {owners[key]!r}"
                yield Fault(("roster", name), message, "every site makes a key of its own")
            owners[key] = name


class SmoothingSection(Section):
    """The smooth function that stands for max(x, 0)."""

    name: Literal["softplus", "soft-relu", "zang", "quadratic", "chks", "gaussian"] = "zang"
    """zang, softplus (= soft-relu, as in the paper), quadratic, chks or gaussian"""

    gamma: PositiveFloat = 0.02
    """width of the smoothing (gamma), above 0, in units of the loss; where a target is scaled, in losses of an
    error of one deviation"""


Measure: TypeAlias = Literal["loss", "excess"]


class ReferenceSection(Section):
    """The reference models of `measure: excess`: perceptrons that say what can be said of an outcome."""

    hidden: Items[Annotated[PositiveInt, Field(le=1024)]] = Field(default=(32,), min_length=1, max_length=3)
    """width of each hidden layer, 1 to 1024"""

    folds: int = Field(default=2, ge=2, le=10)
    """parts into which a site deals its training records, 2 to 10; each is judged by a reference of the others"""

    rounds: PositiveInt = Field(default=60, le=10**4)
    """most sums before round 1, at least 1"""

    patience: PositiveInt = 10
    """sums without a lower loss on unseen records after which the references are done, at least 1"""

    local_steps: PositiveInt = Field(default=20, le=10**6)
    """steps of each reference between two sums, at least 1"""

    batch_size: PositiveInt = 64
    """records in a batch, at least 1"""

    learning_rate: PositiveFloat = 0.1
    """size of a step, above 0"""

    run: Digest | None = None
    """digest of an earlier run's references, which its result states: they come from plan.references.safetensors;
    null trains them"""

    def faults(self) -> Iterator[Fault]:
        """Yield every rule of its own that the section breaks."""
        if self.run is None:
            return
        for name in ("rounds", "patience", "local_steps", "batch_size", "learning_rate"):
            value = getattr(self, name)
            if value != type(self).model_fields[name].default:
                message = f"is {value:g} beside run, whose references are trained already"
                yield Fault((name,), message, f"leave out {name}, or run")


class ObjectiveSection(Section):
    """The regularised conditional value at risk (RCVaR)."""

    name: Literal["rcvar"] = "rcvar"
    """rcvar"""

    worst_group_size: GroupSize = 0.1
    """share of the population that the worst group has at least (rho), above 0 to 1"""

    tradeoff: float = Field(default=0.05, ge=0, le=1)
    """weight of the mean loss (epsilon), 0 (worst group) to 1 (mean)"""

    measure: Measure | None = None
    """what is measured of a person: loss, or excess, which is by how much the expected loss is above what a
    reference attains; null takes excess where a reference can say more than the model (a linear one, or a small
    mlp), fits into a sum and nothing excludes it, else loss"""

    reference: ReferenceSection | None = None
    """with the excess: the reference models; null for the usual ones"""

    smoothing: SmoothingSection = SmoothingSection()
    """{name: zang, gamma: 0.02}: the smooth form of max(x, 0)"""

    loss_bound: PositiveFloat | None = None
    """upper bound of the threshold (B), above 0, in units of the loss; null for none"""

    @property
    def is_mean(self) -> bool:
        """Return whether it is the mean of all records, as a worst group of all is, and a tradeoff of 1."""
        return self.worst_group_size == 1.0 or self.tradeoff == 1.0


class ServerOptimizerSection(Section):
    """The step that the federation makes with the mean of the sites' changes."""

    name: Literal["sgd", "momentum", "adam", "yogi"]
    """sgd (plain averaging, as in the paper), momentum, adam or yogi"""

    learning_rate: PositiveFloat | None = None
    """size of the step, above 0; null takes training.learning_rate for sgd and momentum; for adam and yogi 0.3
    with a linear model, 0.03 with an mlp, 0.01 with any other"""

    momentum: float = Field(default=0.9, ge=0, lt=1)
    """what remains of the earlier steps' mean (beta1), 0 to below 1"""

    second_momentum: float = Field(default=0.95, ge=0, lt=1)
    """adam, yogi: what remains of the earlier squares' mean (beta2), 0 to below 1"""

    floor: PositiveFloat = 1e-8
    """adam, yogi: added to the root of the squares' mean, above 0, in units of the gradient"""


class TrainingSection(Section):
    """How the model is trained."""

    algorithm: AlgorithmName = "fedsrcvar"
    """fedsrcvar, fedavg, fedminmax, qffl or localbpf; in a simulation also afl, drfa, deltafl, fedmgda, and on
    pooled records erm, dro, bpf (docs/explain/algorithms.md)"""

    options: OptionsSection = OptionsSection()
    """what only some algorithms take"""

    rounds: PositiveInt = Field(le=10**9)
    """training rounds (T), an integer, at least 1"""

    local_steps: PositiveInt = Field(default=1, le=10**9)
    """steps that a collaborator takes in a round (tau), at least 1"""

    local_epochs: PositiveInt | None = Field(default=None, le=10**6)
    """passes over the local records in a round, instead of local_steps; at least 1, or null"""

    resample: Literal["step", "round"] = "step"
    """step: a fresh batch for every step; round: one batch for all steps of a round"""

    control_variates: bool = False
    """true corrects every local step by how a collaborator differs from all of them (SCAFFOLD); for local_steps
    above 1"""

    batch_size: BatchSize = 256
    """records in a batch, an integer of at least 1, or full for all of a site's records"""

    learning_rate: PositiveFloat = 0.01
    """step size of the model at a site (eta), above 0"""

    threshold_learning_rate: PositiveFloat | None = None
    """step size of the threshold at a site, above 0; null takes learning_rate"""

    schedule: Literal["constant", "linear", "cosine"] = "cosine"
    """how every learning rate goes over the rounds: constant, linear (falls to nothing in equal steps), cosine
    (falls to nothing slowly, quickly, slowly)"""

    warm_up: float = Field(default=0.1, ge=0, le=0.5)
    """share of the rounds in which the rates rise before they fall, 0 to 0.5; constant has none"""

    server_optimizer: ServerOptimizerSection | None = None
    """{name: sgd | momentum | adam | yogi, ...}: the step made with the mean of the changes; null takes adam, but
    sgd where noise protects records or sites"""

    weight_decay: float | None = Field(default=None, ge=0, lt=1)
    """share of every weight, but of no bias, that a round takes away at the full rate, 0 to below 1; null takes
    0.03 with an mlp whose steps are adam's or yogi's, else none"""

    threshold_init: ThresholdInit | None = None
    """threshold before round 1: bound (loss_bound, or 1), quantile (by the evaluation before round 1; where given
    weights have none, as bound), or a number >= 0; null takes quantile where a threshold is learnt without noise,
    else bound"""

    weights: Literal["samples", "batch", "uniform"] = "samples"
    """weight of a collaborator: samples (its records), batch (its batch), uniform"""

    output: Literal["last", "average", "tail", "best"] = "best"
    """model that is the result: best (of those that are evaluated, the untrained one among them), last, average
    (all rounds), tail (second half); under privacy best is last"""

    patience: PositiveInt | None = None
    """evaluations in a row without a better model after which training ends before its last round, at least 1; for
    output: best; null trains all rounds"""

    parameters: ParametersSection | None = None
    """the parameters that are trained and travel; null for all"""

    seed: int = Field(default=0, ge=0, lt=2**63)
    """seed of every draw, an integer from 0 to 2^63 - 1"""

    initial: InitialSection | None = None
    """what the run begins with; null makes the weights from the seed. `fedfair plan freeze --from` writes it to
    plan.initial.yaml beside the plan"""

    device: Device = "auto"
    """auto, cpu, cuda or mps; a site may choose its own"""

    precision: Literal["fp32", "fp64", "bf16", "fp16"] = "fp32"
    """width of the arithmetic: fp32, fp64, bf16 or fp16 (both keep a float32 model)"""

    compile: bool = False
    """true compiles the model with torch.compile"""

    def faults(self) -> Iterator[Fault]:
        """Yield every rule of its own that the section breaks."""
        if self.local_epochs is not None and self.local_steps > 1:
            yield Fault(
                ("local_epochs",),
                f"is {self.local_epochs} while local_steps is {self.local_steps}",
                "state one of them",
            )
        yield from self._initial_faults()
        yield from option_faults(self.algorithm, self.options)
        yield from step_faults(self.algorithm, self.local_steps, self.local_epochs)
        if self.server_optimizer is not None and not ALGORITHMS[self.algorithm].mean_of_changes:
            yield Fault(
                ("server_optimizer",),
                f"is stated, but {self.algorithm} makes a step of its own",
                "leave server_optimizer out",
            )
        if self.control_variates:
            yield from variate_faults(self.algorithm, self.local_steps, self.local_epochs)
        if self.weight_decay and not ALGORITHMS[self.algorithm].mean_of_changes:
            yield Fault(
                ("weight_decay",),
                f"is {self.weight_decay:g}, but {self.algorithm} makes a step of its own",
                "leave weight_decay out",
            )
        if self.parameters is not None and self.parameters.keep is not None:
            yield from kept_faults(self.algorithm, self.output, self.patience, variates=self.control_variates)
        if self.patience is not None and self.output != "best":
            yield Fault(
                ("patience",),
                f"is {self.patience}, but output: {self.output} chooses no model by its evaluations",
                "leave patience out, or set output: best",
            )
        if self.algorithm == "fedminmax" and self.weights != "samples":
            yield Fault(("weights",), f"is {self.weights}, but fedminmax counts records", "use weights: samples")

    def _initial_faults(self) -> Iterator[Fault]:
        stated = self.initial
        if stated is None:
            return
        takes_it = self.threshold_init in (None, "bound", *(() if stated.same_sites else ("quantile",)))
        if stated.threshold is not None and not takes_it:
            yield Fault(
                ("initial", "threshold"),
                f"is {stated.threshold:g} beside threshold_init {self.threshold_init}",
                "state one of them",
            )
        yield from unevaluated_faults(self, stated)
        if stated.continues is not None and stated.continues.rounds >= self.rounds:
            yield Fault(
                ("rounds",),
                f"is {self.rounds}, and {stated.continues.rounds} rounds are done",
                "state more rounds than are done: `fedfair plan extend --rounds N` adds N",
            )


def unevaluated_faults(training: TrainingSection, initial: InitialSection) -> Iterator[Fault]:
    """Yield what needs the figures of given weights that are not evaluated before round 1.

    Args:
        training: the section that they are for.
        initial: what the run begins with.
    """
    if initial.continues is not None or initial.same_sites:
        return
    if training.output in {"average", "tail"} and training.rounds == 1:
        yield Fault(
            ("output",),
            f"is {training.output} of 1 round, which is the model before it: weights that are given",
            "use last, or more rounds",
        )


class SecureAggregationSection(Section):
    """How sums are protected from the aggregator."""

    mode: Literal["malicious", "semi-honest", "off"] = "malicious"
    """malicious (the aggregator may lie), semi-honest (it follows the protocol), off (plain sums)"""

    colluders: int = Field(default=0, ge=0)
    """collaborators that may collude with the aggregator, from 0 to all but two"""

    key_agreement: Literal["x25519", "x25519-mlkem768"] = "x25519"
    """how two sites agree on a key: x25519, or x25519-mlkem768 (also against quantum computers)"""

    ring_bits: Literal[32, 24, 20, 16] = 32
    """bits of each masked number: 32, 24, 20 or 16"""

    clip: Clip = "auto"
    """largest change of one parameter that is sent unclipped, above 0; or auto: by the last round"""

    max_clip: PositiveFloat = 1024.0
    """largest clip that auto may choose, above 0"""

    most_records: int = Field(default=1 << 16, ge=1, le=1 << 40)
    """most training records of one collaborator; masked updates are the finer, the smaller it is"""

    check_sums: bool = True
    """whether every site checks that an opened sum is what the sites added"""

    neighbours: Literal["auto", "all"] | Annotated[int, Field(ge=4, le=998, multiple_of=2)] = "auto"
    """with how many others each site shares masks: all, an even number from 4, or auto: all where there are at
    most 128 sites, otherwise as few as are safe"""


class SlicesSection(Section):
    """The slices of people whom the output model serves worst, by their columns (docs/explain/evaluation.md)."""

    columns: Items[Text] | None = Field(default=None, min_length=1, max_length=100)
    """columns whose cells are looked at, names of features; null for all"""

    bins: int = Field(default=4, ge=2, le=10)
    """cells of a numeric column, of about as many people each, 2 to 10"""

    pairs: bool = True
    """true also looks at the cells of every two columns that hold enough people"""

    outcomes: bool = False
    """true also counts in these cells who has the outcome and whom the model flags, and with measure: excess sums
    what references said; every site must allow it (policy.reveals: slice-outcomes)"""

    def faults(self) -> Iterator[Fault]:
        """Yield every rule of its own that the section breaks."""
        for index, name in repeated(self.columns or ()):
            yield Fault(("columns", index), f"column {name!r} is listed twice", "remove one of them")


class SetsSection(Section):
    """Prediction sets: no group of a size is missed more often than a share (docs/explain/sets.md)."""

    group_size: GroupSize | None = None
    """the least share of people that a group has, above 0 to 1; null takes objective.worst_group_size"""

    missed: float = Field(default=0.1, gt=0, lt=1)
    """the most of such a group whose answer is not in its set, above 0, below 1"""

    confidence: float = Field(default=0.95, ge=0.5, lt=1)
    """of the bound on the share of all people that one model's sets miss, 0.5 to below 1"""


class ReleaseAuditSection(Section):
    """How well the output model tells training records from held-out ones (docs/explain/release-audit.md)."""

    worst_slices: int = Field(default=4, ge=0, le=MAX_AUDITED_SLICES)
    """so many of the worst slices are audited by themselves, 0 to 8, where evaluation.slices finds any"""


class EvaluationSection(Section):
    """The evaluation, from sums alone."""

    every: PositiveInt = Field(default=10, le=10**9)
    """rounds between two evaluations, an integer, at least 1"""

    group_sizes: Items[GroupSize] = Field(default=(0.05, 0.1, 0.2, 0.3, 0.5), min_length=1, max_length=100)
    """group sizes whose worst risk is reported, increasing, each above 0 to 1"""

    method: Literal["histogram", "exact"] = "histogram"
    """histogram (one sum, risks in proven intervals) or exact (four more at the end, to 7 digits)"""

    min_group: PositiveInt = Field(default=5, le=10**6)
    """fewest people in a group whose risk is reported, at least 1"""

    site_means: bool = False
    """true shows the aggregator and all sites each site's number of records, mean loss and accuracy by split;
    every site must allow it (policy.publish_site_means)"""

    site_weights: dict[ParticipantName, Annotated[PositiveFloat, Field(le=MAX_SITE_WEIGHT)]] = Field(default={})
    """share of each site's people in the population that a certificate speaks of, in any unit; {} takes the shares
    of the evaluated records; needs site_means"""

    scores: bool = False
    """true also sums a histogram of scores (the predicted probabilities) by class, for AUC and calibration, with
    up to 10 classes; every site must allow it (policy.reveals: score-sums)"""

    calibration: Literal["platt", "none"] = "platt"
    """with scores: true, what makes probabilities of scores: platt (two numbers for each class, from the summed
    histogram of scores, stored with the model) or none; it opens no further sum"""

    sets: SetsSection | None = SetsSection()
    """{group_size, missed, confidence}: sets of classes (with scores: true) or intervals around a number, stored
    with the model, from the test records' histogram; it opens no further sum; null for none"""

    bins: int = Field(default=256, ge=8, le=4096)
    """bins of the loss histogram, 8 to 4096"""

    loss_range: PositiveFloat | None = None
    """losses above it share one bin, in units of the loss; null means 8 log(classes), 8 times the loss of guessing
    of other tasks, or what task.loss.target_range allows"""

    slices: SlicesSection | None = None
    """{columns, bins, pairs, outcomes}: at the end three sums over cells of columns name the people whom the
    output model serves worst; null for none; every site must allow it (policy.reveals: slice-sums)"""

    release_audit: ReleaseAuditSection | None = None
    """{worst_slices}: at the end one sum tells how well losses of the output model give away who was trained on,
    for which each record's side is drawn by itself; null for none; every site must allow it (policy.reveals:
    audit-sums)"""

    def faults(self) -> Iterator[Fault]:
        """Yield every rule of its own that the section breaks."""
        for index, (left, right) in enumerate(itertools.pairwise(self.group_sizes), start=1):
            if right <= left:
                yield Fault(("group_sizes", index), f"{right} follows {left}", "list them in increasing order")
        if self.site_weights and not self.site_means:
            yield Fault(
                ("site_weights",),
                "weighs sites against numbers of records that site_means: false does not publish",
                "set site_means: true, or leave site_weights out",
            )
        if self.method == "exact" and len(self.group_sizes) > MAX_EXACT_SIZES:
            yield Fault(
                ("group_sizes",),
                f"has {len(self.group_sizes)} sizes, an exact evaluation has room for {MAX_EXACT_SIZES}",
                "list fewer, or use method: histogram",
            )
