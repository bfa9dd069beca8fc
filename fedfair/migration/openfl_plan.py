"""The plan that is written in place of an OpenFL plan, and the findings about each of its keys.

Decides which values the written plan takes: names, rounds, epochs, batch, rate, quorum, deadline, address,
shape and classes. What a key means without its value is the table's business (`openfl_keys.py`).
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from fedfair.errors import FedfairError, PlanError
from fedfair.ids import MAX_NAME_LENGTH, parse_participant_id
from fedfair.migration.data_loader import DataFacts, SitePaths
from fedfair.migration.findings import Finding, FindingKind, shown_value
from fedfair.migration.openfl_config import SETTINGS, TEMPLATE, Leaf, OpenflConfig
from fedfair.migration.openfl_keys import STRAGGLER_PART, STRAGGLER_TIME, UNKNOWN, finding_of, outcome_of
from fedfair.migration.task_runner import LocalOptimizer
from fedfair.plan.yaml_reader import Value, resolve

DEFAULT_ROUNDS = 256
"""Of OpenFL's aggregator, where a plan states none."""

DEFAULT_PORT = 8443
MIN_SITES = 2
_FOREIGN_SECTIONS = {
    "connector": "runs another framework through OpenFL's connector",
    "federated_flow": "is a plan of OpenFL's workflow interface",
}
_FRAMEWORK_REMEDY = "only plans of the task runner interface with PyTorch are migrated: docs/how-to/from-openfl.md"


@dataclass(frozen=True, slots=True)
class Modules:
    """The modules that are written, under `src`: `loader:records` and `model:build` are in the new plan."""

    loader: str
    model: str


@dataclass(frozen=True, slots=True)
class Sites:
    """Who takes part.

    Attributes:
        names: as the new plan has them, in order.
        paths: by new name, what `plan/data.yaml` gives the site.
        findings: about names.
    """

    names: tuple[str, ...]
    paths: Mapping[str, str]
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class PlanValues:
    """Values of the old plan and its code, in the units of a plan of fedfair.

    Attributes:
        host, port: of the aggregator.
        needed_sites: how many must contribute to a sum; None for all.
        deadline: seconds of a round; None for fedfair's default.
        rounds, epochs, batch_size: of training; None for fedfair's default.
        rate: of a site's plain gradient steps; None where the old code steps otherwise.
        server: name of `training.server_optimizer`; None for fedfair's default.
        device: auto, cpu or cuda, for the sites' own files.
    """

    host: str
    port: int
    needed_sites: int | None
    deadline: int | None
    rounds: int
    epochs: int
    batch_size: int | None
    rate: float | None
    server: str | None
    device: str | None


def check_kind(config: OpenflConfig) -> None:
    """Refuse a plan that is none of OpenFL's task runner interface.

    Raises:
        PlanError: a section is missing, or belongs to another interface.
    """
    for section, reason in _FOREIGN_SECTIONS.items():
        if section in config.values:
            raise PlanError(f"{config.place(section)}: the plan {reason}", _FRAMEWORK_REMEDY)
    for section in ("aggregator", "task_runner"):
        if section not in config.values:
            raise PlanError(
                f"{config.path}: has no section {section}, so it is no plan of OpenFL",
                "name the folder that holds plan/plan.yaml, plan/cols.yaml and plan/data.yaml",
            )
    template = str(config.get("aggregator", TEMPLATE) or "")
    if ".experimental." in template or ".workflow." in template:
        raise PlanError(
            f"{config.place('aggregator', TEMPLATE)}: the plan {_FOREIGN_SECTIONS['federated_flow']}",
            _FRAMEWORK_REMEDY,
        )


def sites_of(named: Sequence[tuple[str, str]], paths: Mapping[str, tuple[str, str]], count: int) -> Sites:
    """Return who takes part.

    Args:
        named: names of `plan/cols.yaml`, each with its place.
        paths: of `plan/data.yaml`, by name: the text and its place.
        count: how many the plan speaks of; 0 where it does not.

    Raises:
        PlanError: two names become the same.
    """
    places = dict(named) or {name: place for name, (_, place) in paths.items()}
    new: dict[str, str] = {}
    findings = []
    for name, place in places.items():
        usable = _usable(name)
        if usable in new.values():
            raise PlanError(
                f"{place}: {name!r} becomes {usable!r}, as another collaborator does", "rename one of them"
            )
        new[name] = usable
        words = "" if usable == name else "names are 1 to 40 of a-z, 0-9 and '-': they are part of certificates"
        becomes = f"federation.collaborators: {usable}"
        findings.append(Finding(FindingKind.CARRIED_OVER, place, f"collaborator {name}", name, becomes, words))
    names = [*new.values()]
    for number in range(1, max(count, MIN_SITES) + 1):
        if len(names) >= max(count, MIN_SITES):
            break
        if f"collaborator{number}" not in names:
            names.append(f"collaborator{number}")
            words = "a name was made up, because the workspace names fewer: write the site's real name"
            place = "plan/cols.yaml"
            findings.append(
                Finding(FindingKind.BY_HAND, place, "collaborators", names[-1], "federation.collaborators", words)
            )
    for name, (_, place) in paths.items():
        if name not in new:
            words = "plan/cols.yaml does not name it, so it takes no part"
            findings.append(Finding(FindingKind.BY_HAND, place, f"collaborator {name}", name, "", words))
    return Sites(
        tuple(names), {new[name]: text for name, (text, _) in paths.items() if name in new}, tuple(findings)
    )


def _usable(name: str) -> str:
    text = _plain_letters(name) or "site"
    try:
        return parse_participant_id(text)
    except FedfairError:
        return f"site-{text}"[:MAX_NAME_LENGTH]


def federation_name(text: str) -> str:
    """Return a text, such as a folder's name, as the name of a federation."""
    return _plain_letters(text) or "federation"


def _plain_letters(text: str) -> str:
    """Return a text in a-z, 0-9 and inner hyphens, without accents; empty where nothing of it is left."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:MAX_NAME_LENGTH].strip("-")


def plan_values(config: OpenflConfig, count: int, optimizer: LocalOptimizer | None) -> PlanValues:
    """Return what the written plan takes.

    Args:
        config: the old plan.
        count: number of collaborators.
        optimizer: of the old code.

    Raises:
        PlanError: a value is of the wrong kind or out of range.
    """
    reader = _Reader(config)
    network = ("network", SETTINGS)
    task = _training_task(config)
    batch = reader.whole(("data_loader", SETTINGS, "batch_size"), None)
    if batch is None and task is not None:
        batch = reader.whole(("tasks", task, "kwargs", "batch_size"), None)
    epochs = reader.whole(("tasks", task, "kwargs", "epochs"), 1) if task is not None else 1
    plain = optimizer is not None and optimizer.name == "SGD" and optimizer.rate is not None
    stated = str(config.get("tasks", task or "", "aggregation_type", TEMPLATE) or "").rpartition(".")[2]
    adaptive = {"AdamAdaptiveAggregation": "adam", "YogiAdaptiveAggregation": "yogi"}.get(stated)
    cutoff = reader.positive(("straggler_handling_policy", SETTINGS, "straggler_cutoff_time"))
    return PlanValues(
        host=reader.host((*network, "agg_addr")),
        port=reader.whole((*network, "agg_port"), DEFAULT_PORT) or DEFAULT_PORT,
        needed_sites=_needed_sites(reader, config, count),
        deadline=None if cutoff is None else max(1, math.ceil(cutoff)),
        rounds=reader.whole(("aggregator", SETTINGS, "rounds_to_train"), DEFAULT_ROUNDS) or DEFAULT_ROUNDS,
        epochs=epochs or 1,
        batch_size=batch,
        rate=optimizer.rate if plain and optimizer is not None else None,
        server=adaptive or ("sgd" if plain else None),
        device=_device(config),
    )


def _training_task(config: OpenflConfig) -> str | None:
    tasks = config.get("tasks")
    for name, task in (tasks if isinstance(tasks, dict) else {}).items():
        if isinstance(task, dict) and str(task.get("function", "")).startswith("train"):
            return name
    return None


def _needed_sites(reader: _Reader, config: OpenflConfig, count: int) -> int | None:
    policy = ("straggler_handling_policy",)
    name = str(config.get(*policy, TEMPLATE) or "").rpartition(".")[2]
    if name not in STRAGGLER_PART | STRAGGLER_TIME:
        return None
    least = reader.whole((*policy, SETTINGS, "minimum_reporting"), 1) or 1
    share = reader.positive((*policy, SETTINGS, "percent_collaborators_needed"))
    if name in STRAGGLER_PART:
        share = 1.0 if share is None else share
        if share > 1:
            place = config.place(*policy, SETTINGS, "percent_collaborators_needed")
            raise PlanError(f"{place}: percent_collaborators_needed is {share:g}", "it is a share, above 0 to 1")
        least = max(least, math.ceil(share * count))
    return min(max(least, MIN_SITES), count)


def _device(config: OpenflConfig) -> str | None:
    stated = config.get("task_runner", SETTINGS, "device")
    if isinstance(stated, str):
        return next((known for known in ("cpu", "cuda", "mps") if stated.startswith(known)), "auto")
    policy = config.get("collaborator", SETTINGS, "device_assignment_policy")
    return {"CPU_ONLY": "cpu", "CUDA_PREFERRED": "auto"}.get(str(policy))


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads values of the old plan, and says where one is wrong."""

    config: OpenflConfig

    def whole(self, key: tuple[str, ...], default: int | None) -> int | None:
        """Return a whole number of at least 1."""
        value = _plain(self.config.get(*key))
        if value is None or value == "auto":
            return default
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self._fault(key, value, "a whole number of at least 1")
        return value

    def positive(self, key: tuple[str, ...]) -> float | None:
        """Return a finite number above 0; None where there is none."""
        value = _plain(self.config.get(*key))
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            raise self._fault(key, value, "a number above 0")
        return float(value)

    def host(self, key: tuple[str, ...]) -> str:
        """Return a host's name."""
        value = self.config.get(*key)
        if value in (None, "auto"):
            return "localhost"
        if not isinstance(value, str):
            raise self._fault(key, value, "the name of a host")
        return value

    def _fault(self, key: tuple[str, ...], value: Value, expected: str) -> PlanError:
        return PlanError(f"{self.config.place(*key)}: {'.'.join(key)} is {value!r}", f"it must be {expected}")


def _plain(value: Value) -> Value:
    """Return a number that stands in quotes as the number, as OpenFL's own int(...) would take it."""
    return resolve(value) if isinstance(value, str) else value


def key_findings(
    config: OpenflConfig, values: PlanValues, modules: Modules, *, model_is_whole: bool, loader_is_whole: bool
) -> Iterator[Finding]:
    """Yield one finding for each key of the old plan.

    Args:
        config: the old plan.
        values: what was written.
        modules: the modules that were written.
        model_is_whole: whether the model was carried over.
        loader_is_whole: whether the loader was carried over.
    """
    task = _training_task(config)
    for leaf in config.leaves():
        found = (
            _of_code(leaf, "task_runner", f"task.model: {modules.model}:build", whole=model_is_whole)
            or _of_code(leaf, "data_loader", f"task.data: {modules.loader}:records", whole=loader_is_whole)
            or _of_other_task(leaf, task)
        )
        yield found or _with_value(finding_of(leaf), values)


def _of_code(leaf: Leaf, section: str, becomes: str, *, whole: bool) -> Finding | None:
    """Return the finding about a key that only the carried code reads."""
    if leaf.key[0] != section or outcome_of(leaf) is not UNKNOWN or len(leaf.key) < 2:
        return None
    kind = FindingKind.CARRIED_OVER if whole else FindingKind.BY_HAND
    module, _, function = becomes.partition(": ")[2].partition(":")
    if leaf.key[1] == TEMPLATE:
        words = f"src/{module}.py" if whole else f"complete {function} in src/{module}.py"
    elif leaf.key[1] == SETTINGS:
        words = "an argument in the code" if whole else f"what your code does with it belongs into {function}"
    else:
        return None
    return Finding(kind, leaf.place, leaf.name, shown_value(leaf.value), becomes, words)


def _of_other_task(leaf: Leaf, task: str | None) -> Finding | None:
    """Return the finding about batch and epochs of a task that does not train."""
    evaluates = leaf.key[0] == "tasks" and leaf.key[2:] in (("kwargs", "batch_size"), ("kwargs", "epochs"))
    if not evaluates or leaf.key[1] == task:
        return None
    words = "evaluations read all records, in batches of fedfair's choice"
    return Finding(FindingKind.BUILT_IN, leaf.place, leaf.name, shown_value(leaf.value), "evaluation", words)


def _with_value(finding: Finding, values: PlanValues) -> Finding:
    """Return a finding with what was written for its key."""
    written = {
        "federation.min_collaborators": "null" if values.needed_sites is None else values.needed_sites,
        "federation.round_deadline_seconds": values.deadline,
        "federation.aggregator.host": values.host,
        "federation.aggregator.port": values.port,
        "training.rounds": values.rounds,
        "training.local_epochs": values.epochs,
        "training.batch_size": values.batch_size,
        "device": values.device,
    }.get(finding.becomes)
    if finding.kind not in (FindingKind.CARRIED_OVER, FindingKind.BY_HAND) or written is None:
        return finding
    return replace(finding, becomes=f"{finding.becomes}: {written}")


def code_findings(
    values: PlanValues, optimizer: LocalOptimizer | None, facts: DataFacts, config: OpenflConfig
) -> Iterator[Finding]:
    """Yield what is written or missing because of the code: step, shape, classes, batch, assignment."""
    if optimizer is not None:
        yield _step(values, optimizer)
    else:
        words = "the code makes no optimiser that could be found; fedfair's defaults need no tuning"
        yield Finding(
            FindingKind.BY_HAND,
            config.place("task_runner", TEMPLATE),
            "optimizer",
            "",
            "training.learning_rate",
            words,
        )
    for key, value in (("input_shape", facts.input_shape), ("classes", facts.classes)):
        if value is None:
            words = f"the loader's code does not say it in numbers: state task.{key} in plan/plan.yaml"
            yield Finding(FindingKind.BY_HAND, facts.place, key, "", f"task.{key}", words)
        else:
            shown = list(value) if isinstance(value, tuple) else value
            yield Finding(
                FindingKind.CARRIED_OVER,
                facts.place,
                key,
                str(shown),
                f"task.{key}: {shown}",
                "from the loader's code",
            )
    if config.get("data_loader", SETTINGS, "batch_size") is None and values.batch_size is None:
        words = "the plan states none, so fedfair's 256 records count; state it if your code has another default"
        yield Finding(FindingKind.BY_HAND, facts.place, "batch_size", "", "training.batch_size", words)
    if _training_task(config) is None:
        words = "no task trains: to evaluate a model that is there use `fedfair aggregator evaluate`"
        yield Finding(FindingKind.BY_HAND, config.place("tasks"), "tasks", "", "", words)
    if config.get("aggregator", SETTINGS, "rounds_to_train") is None:
        words = f"OpenFL's default of {DEFAULT_ROUNDS} rounds was written"
        yield Finding(
            FindingKind.CARRIED_OVER, config.place("aggregator"), "rounds_to_train", "", "training.rounds", words
        )


def _step(values: PlanValues, optimizer: LocalOptimizer) -> Finding:
    rate = "" if optimizer.rate is None else f"lr={optimizer.rate:g}"
    if values.rate is not None and not optimizer.momentum:
        becomes = f"training.learning_rate: {values.rate:g}"
        words = "plain gradient steps at the sites, and the plain mean of their changes"
        return Finding(FindingKind.CARRIED_OVER, optimizer.place, optimizer.name, rate, becomes, words)
    if values.rate is not None:
        words = "sites step without momentum; state server_optimizer: {name: momentum} for the federation's step"
        return Finding(
            FindingKind.NO_COUNTERPART, optimizer.place, optimizer.name, rate, "training.server_optimizer", words
        )
    words = "sites make plain gradient steps; adaptive steps are the federation's own (adam by default, no tuning)"
    return Finding(
        FindingKind.NO_COUNTERPART, optimizer.place, optimizer.name, rate, "training.server_optimizer", words
    )


def plan_text(
    origin: str,
    federation: str,
    sites: Sites,
    values: PlanValues,
    facts: DataFacts,
    where: SitePaths,
    modules: Modules,
) -> str:
    """Return the commented plan."""
    quorum = "null" if values.needed_sites is None else str(values.needed_sites)
    lines = [
        f"# Migrated from the OpenFL workspace {origin}. MIGRATION.md lists what is left to do.",
        "federation:",
        f"  name: {federation}",
        "  aggregator:",
        f"    host: {_scalar(values.host)}    # the name under which collaborators reach the aggregator",
        f"    port: {values.port}",
        f"  collaborators: [{', '.join(map(_scalar, sites.names))}]",
        f"  min_collaborators: {quorum}    # how many must contribute to every sum; null for all",
        *([] if values.deadline is None else [f"  round_deadline_seconds: {values.deadline}"]),
        "task:",
        f"  data: {modules.loader}:records    # a function of src/{modules.loader}.py",
        *_partition_lines(where),
        "  test_fraction: 0.2          # held out of training: the result speaks about these people",
        "  validation_fraction: 0.2    # held out too: the run returns the model that does best on them",
        "  standardize: none           # or secure: means and variances of columns, from one sum before round 1",
        *_declared("input_shape", None if facts.input_shape is None else list(facts.input_shape), "[13]"),
        *_declared("classes", facts.classes, "2"),
        f"  model: {modules.model}:build",
        "objective:",
        "  name: rcvar",
        "  # With algorithm fedsrcvar this is what is minimised; with fedavg the evaluation reports it.",
        "  worst_group_size: 0.3",
        "  tradeoff: 0.3",
        "training:",
        "  algorithm: fedavg           # everybody's mean, as in OpenFL; fedsrcvar protects the worst group",
        f"  rounds: {values.rounds}",
        f"  local_epochs: {values.epochs}",
        *([] if values.batch_size is None else [f"  batch_size: {values.batch_size}"]),
        *_step_lines(values),
        "secure_aggregation:",
        "  mode: malicious             # sums are masked, also from an aggregator that lies",
        "evaluation:",
        "  every: 1                    # OpenFL validates in every round",
        "",
    ]
    return "\n".join(lines)


def _partition_lines(where: SitePaths) -> list[str]:
    if where.are_shards:
        return [
            "  partition: {scheme: random}    # the old sites took shards of one data set; remove it for own files"
        ]
    return [
        "  # partition: {scheme: random}  # for a rehearsal on one machine: divides what `records` returns there"
    ]


def _declared(key: str, value: object, example: str) -> list[str]:
    if value is None:
        return [f"  # {key}: {example}           # TODO by hand: nobody else tells the aggregator"]
    return [f"  {key}: {value}"]


def _step_lines(values: PlanValues) -> list[str]:
    lines = []
    if values.rate is not None:
        lines += [f"  learning_rate: {values.rate!r}", "  schedule: constant"]
    if values.server is not None:
        lines.append(f"  server_optimizer: {{name: {values.server}}}")
    return lines


def _scalar(text: str) -> str:
    """Return a text as a scalar of YAML that is read as the same text."""
    return text if re.fullmatch(r"[a-z][a-z0-9.-]*", text) and resolve(text) == text else json.dumps(text)
