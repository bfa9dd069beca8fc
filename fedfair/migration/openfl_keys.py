"""The keys of an OpenFL plan, and what becomes of each: a table, and the few that depend on their value.

Decides the kind and the words of a finding. The table is in the order of OpenFL's sections; `*` stands for one
part of a path and `**` for all that follow. A key that is in no row is told as unknown, so none is lost. Which
values the written plan takes is `openfl_plan.py`'s business. Source: the sections and settings of OpenFL 1.5 to
1.9.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import NamedTuple

from fedfair.migration.findings import Finding, FindingKind, shown_value
from fedfair.migration.openfl_config import Leaf
from fedfair.plan.yaml_reader import Value

HAND, NONE, BUILT_IN, CARRIED = (
    FindingKind.BY_HAND,
    FindingKind.NO_COUNTERPART,
    FindingKind.BUILT_IN,
    FindingKind.CARRIED_OVER,
)


class KeyOutcome(NamedTuple):
    """The end that a key comes to.

    Attributes:
        kind: the kind of the finding.
        becomes: the key of fedfair.
        words: what to do, or what fedfair does.
    """

    kind: FindingKind
    becomes: str
    words: str


UNKNOWN = KeyOutcome(
    HAND,
    "",
    "this command does not know the key: read what it does in OpenFL, then look in docs/reference/plan.md",
)


def is_on(value: Value) -> bool:
    """Return whether YAML 1.1, which OpenFL reads, takes the value as true; yes and on are texts in YAML 1.2."""
    return value is True or (isinstance(value, str) and value.lower() in {"yes", "on", "true", "y"})


def _last(value: Value) -> str:
    return str(value).rpartition(".")[2]


def _own_component(name: str, does: str) -> Callable[[Value], KeyOutcome]:
    def outcome(value: Value) -> KeyOutcome:
        if str(value).startswith("openfl.") and _last(value) == name:
            return KeyOutcome(BUILT_IN, "", does)
        return KeyOutcome(
            NONE, "", f"a {name.lower()} of your own has no counterpart: the rules of a run are fedfair's"
        )

    return outcome


def _opt_treatment(value: Value) -> KeyOutcome:
    if value == "RESET":
        return KeyOutcome(BUILT_IN, "", "sites keep no state of an optimiser between rounds")
    return KeyOutcome(
        NONE,
        "training.server_optimizer",
        "sites keep no state of an optimiser between rounds; moments are kept by the federation's own step",
    )


def _switch(on: KeyOutcome, off: KeyOutcome) -> Callable[[Value], KeyOutcome]:
    return lambda value: on if is_on(value) else off


def _address(value: Value) -> KeyOutcome:
    if value in (None, "auto"):
        words = "OpenFL takes the host's own name; write the name under which sites reach the aggregator"
        return KeyOutcome(HAND, "federation.aggregator.host", words)
    return KeyOutcome(CARRIED, "federation.aggregator.host", "")


def _port(value: Value) -> KeyOutcome:
    if value in (None, "auto"):
        words = "OpenFL derives a port from the plan; 8443 was written, so open that one or state another"
        return KeyOutcome(HAND, "federation.aggregator.port", words)
    return KeyOutcome(CARRIED, "federation.aggregator.port", "")


def _transport(value: Value) -> KeyOutcome:
    if value == "grpc":
        return KeyOutcome(BUILT_IN, "", "gRPC over mutual TLS 1.3")
    return KeyOutcome(NONE, "", "gRPC over mutual TLS is the only transport; a proxy is passed by network.proxy")


def _task_function(value: Value) -> KeyOutcome:
    if str(value).startswith("train"):
        return KeyOutcome(BUILT_IN, "training", "fedfair has its own training loop")
    if str(value).startswith("validate"):
        return KeyOutcome(BUILT_IN, "evaluation", "fedfair evaluates by sums, every evaluation.every rounds")
    return KeyOutcome(NONE, "", "rounds train and evaluate, and have no other tasks")


def _apply(value: Value) -> KeyOutcome:
    if value == "local":
        words = "compare the federated with a site's own model at the site, by `fedfair collaborator compare`"
        return KeyOutcome(NONE, "", words)
    return KeyOutcome(BUILT_IN, "evaluation", "the model of the federation is evaluated")


_METRICS = {"loss", "acc", "accuracy", "cross_entropy"}


def _metrics(value: Value) -> KeyOutcome:
    named = value if isinstance(value, list) else [value]
    if all(str(name) in _METRICS for name in named):
        return KeyOutcome(BUILT_IN, "evaluation", "mean loss, accuracy, and the mean loss of the worst groups")
    words = "figures come from sums: mean loss, accuracy, worst groups, with evaluation.scores AUC and calibration"
    return KeyOutcome(NONE, "evaluation", words)


_AGGREGATIONS = {
    "WeightedAverage": KeyOutcome(CARRIED, "training.algorithm", "fedavg, weighted by records"),
    "SecureWeightedAverage": KeyOutcome(CARRIED, "secure_aggregation.mode", "fedavg under masks"),
    "AdamAdaptiveAggregation": KeyOutcome(CARRIED, "training.server_optimizer", "{name: adam}"),
    "YogiAdaptiveAggregation": KeyOutcome(CARRIED, "training.server_optimizer", "{name: yogi}"),
    "AdagradAdaptiveAggregation": KeyOutcome(
        NONE, "training.server_optimizer", "there is no Adagrad; adam, its nearest, is the default"
    ),
    "Median": KeyOutcome(
        NONE, "", "the aggregator sees a sum under masks, and no median of updates can be had from it"
    ),
    "GeometricMedian": KeyOutcome(
        NONE, "", "the aggregator sees a sum under masks, and no median of updates can be had from it"
    ),
    "FedCurvWeightedAverage": KeyOutcome(
        NONE,
        "training.control_variates",
        "there is no FedCurv; control_variates: true (SCAFFOLD) also corrects drift",
    ),
}


def _aggregation(value: Value) -> KeyOutcome:
    words = "an aggregation function of your own has no counterpart: sites add, the aggregator sees the sum"
    return _AGGREGATIONS.get(_last(value), KeyOutcome(NONE, "", words))


def _assigner(value: Value) -> KeyOutcome:
    if _last(value) in {"RandomGroupedAssigner", "StaticGroupedAssigner"}:
        return KeyOutcome(BUILT_IN, "", "every site takes part in every round and evaluation that it can")
    return KeyOutcome(NONE, "", "every site takes part in every round; nobody is assigned anything else")


def _percentage(value: Value) -> KeyOutcome:
    if isinstance(value, int | float) and value in (0, 1):
        return KeyOutcome(BUILT_IN, "", "all sites train in every round")
    return KeyOutcome(NONE, "", "all sites train in every round; groups of sites with other tasks do not exist")


def _pipeline(value: Value) -> KeyOutcome:
    if _last(value) == "NoCompressionPipeline":
        return KeyOutcome(BUILT_IN, "", "nothing is compressed")
    words = "masked numbers cannot be compressed; secure_aggregation.ring_bits: 16 halves what a site sends"
    return KeyOutcome(NONE, "secure_aggregation.ring_bits", words)


STRAGGLER_WAIT = {"WaitForAllPolicy"}
STRAGGLER_PART = {"PercentagePolicy", "PercentageBasedStragglerHandling"}
STRAGGLER_TIME = {"CutoffTimePolicy", "CutoffTimeBasedStragglerHandling"}


def _stragglers(value: Value) -> KeyOutcome:
    name = _last(value)
    if name in STRAGGLER_WAIT:
        return KeyOutcome(CARRIED, "federation.min_collaborators", "null: a sum needs every site")
    if name in STRAGGLER_PART | STRAGGLER_TIME:
        return KeyOutcome(CARRIED, "federation.min_collaborators", "")
    return KeyOutcome(
        NONE, "federation.min_collaborators", "a policy of your own: state how many must answer, and by when"
    )


_KEPT = "nothing to set: what is needed to resume is kept in the aggregator's journal"
_LOGS = "`fedfair aggregator start` has --log-format and --track (MLflow, TensorBoard, JSON lines)"
_CALLBACK = "no code of a plan runs at the aggregator; --track writes figures to MLflow, TensorBoard or a file"
_MASKED = KeyOutcome(BUILT_IN, "secure_aggregation.mode", "sums are masked unless a plan says off")
_MASKED_ANYWAY = KeyOutcome(
    BUILT_IN, "secure_aggregation.mode", "sums are masked all the same; a plan would have to say off"
)
_CHANGES = "sites send how much the model has changed"

Rule = KeyOutcome | Callable[[Value], KeyOutcome]

_TLS = _switch(
    KeyOutcome(BUILT_IN, "", "mutual TLS 1.3"),
    KeyOutcome(NONE, "", "TLS cannot be switched off: `fedfair certs`"),
)

TABLE: Mapping[str, Rule] = {
    "aggregator.template": _own_component("Aggregator", "`fedfair aggregator start`"),
    "aggregator.settings.rounds_to_train": KeyOutcome(CARRIED, "training.rounds", ""),
    "aggregator.settings.init_state_path": KeyOutcome(
        BUILT_IN, "training.seed", "weights begin from the plan's seed; every site approves their digest"
    ),
    "aggregator.settings.best_state_path": KeyOutcome(BUILT_IN, "training.output", "save/best.safetensors"),
    "aggregator.settings.last_state_path": KeyOutcome(BUILT_IN, "training.output", "save/last.safetensors"),
    "aggregator.settings.db_store_rounds": KeyOutcome(BUILT_IN, "", _KEPT),
    "aggregator.settings.persist_checkpoint": KeyOutcome(BUILT_IN, "", _KEPT),
    "aggregator.settings.persistent_db_path": KeyOutcome(BUILT_IN, "", _KEPT),
    "aggregator.settings.write_logs": KeyOutcome(BUILT_IN, "", _LOGS),
    "aggregator.settings.log_metric_callback.**": KeyOutcome(NONE, "", _CALLBACK),
    "aggregator.settings.callbacks.**": KeyOutcome(NONE, "", _CALLBACK),
    "aggregator.settings.callbacks": KeyOutcome(NONE, "", _CALLBACK),
    "aggregator.settings.log_memory_usage": KeyOutcome(
        NONE, "", "`--status` serves memory and time for Prometheus: docs/how-to/watching.md"
    ),
    "aggregator.settings.use_delta_updates": KeyOutcome(BUILT_IN, "", _CHANGES),
    "aggregator.settings.secure_aggregation": _switch(_MASKED, _MASKED_ANYWAY),
    "aggregator.settings.single_col_cert_common_name": KeyOutcome(
        NONE, "", "every site has a key and a certificate of its own: `fedfair certs`"
    ),
    "aggregator.settings.save_native_model": KeyOutcome(
        NONE, "", "`fedfair model export` writes state-dict, TorchScript or ONNX when you ask for it"
    ),
    "aggregator.settings.initial_tensor_dict": KeyOutcome(
        NONE, "training.seed", "weights to begin from are a file beside the module, which its build function reads"
    ),
    "collaborator.template": _own_component("Collaborator", "`fedfair collaborator start`"),
    "collaborator.settings.opt_treatment": _opt_treatment,
    "collaborator.settings.delta_updates": KeyOutcome(BUILT_IN, "", _CHANGES),
    "collaborator.settings.use_delta_updates": KeyOutcome(BUILT_IN, "", _CHANGES),
    "collaborator.settings.db_store_rounds": KeyOutcome(BUILT_IN, "", _KEPT),
    "collaborator.settings.device_assignment_policy": KeyOutcome(
        CARRIED, "device", "each site's own file decides what it computes on"
    ),
    "collaborator.settings.epochs_per_round": KeyOutcome(
        NONE, "training.local_epochs", "an old key; epochs of the task that trains decide"
    ),
    "collaborator.settings.polling_interval": KeyOutcome(BUILT_IN, "", "sites hold a stream open and do not poll"),
    "collaborator.settings.write_logs": KeyOutcome(BUILT_IN, "", _LOGS),
    "collaborator.settings.log_memory_usage": KeyOutcome(
        NONE, "", "a site's `--status` serves its memory and time"
    ),
    "collaborator.settings.callbacks.**": KeyOutcome(NONE, "", _CALLBACK),
    "collaborator.settings.callbacks": KeyOutcome(NONE, "", _CALLBACK),
    "collaborator.settings.secure_aggregation": _switch(_MASKED, _MASKED_ANYWAY),
    "collaborator.settings.interop_mode": KeyOutcome(NONE, "", "no other framework's client runs inside a site"),
    "data_loader.settings.batch_size": KeyOutcome(CARRIED, "training.batch_size", ""),
    "data_loader.settings.collaborator_count": KeyOutcome(
        BUILT_IN, "federation.collaborators", "the names of the sites say how many they are"
    ),
    "data_loader.settings.data_group_name": KeyOutcome(NONE, "", "a label that nothing depends on"),
    "network.template": KeyOutcome(BUILT_IN, "", "the aggregator listens, sites connect outwards"),
    "network.settings.agg_addr": _address,
    "network.settings.agg_port": _port,
    "network.settings.hash_salt": KeyOutcome(BUILT_IN, "", "it only served to derive a port"),
    "network.settings.tls": _TLS,
    "network.settings.use_tls": _TLS,
    "network.settings.disable_client_auth": _switch(
        KeyOutcome(NONE, "", "every site needs a certificate: `fedfair certs`"),
        KeyOutcome(BUILT_IN, "", "every site needs a certificate"),
    ),
    "network.settings.require_client_auth": _switch(
        KeyOutcome(BUILT_IN, "", "every site needs a certificate"),
        KeyOutcome(NONE, "", "every site needs a certificate: `fedfair certs`"),
    ),
    "network.settings.client_reconnect_interval": KeyOutcome(
        BUILT_IN, "federation.reconnect_grace_seconds", "sites come back with growing pauses of their own"
    ),
    "network.settings.cert_folder": KeyOutcome(
        BUILT_IN, "", "cert/ by default, or --cert-folder; OpenFL's certificates do not serve: `fedfair certs`"
    ),
    "network.settings.enable_atomic_connections": KeyOutcome(BUILT_IN, "", "sites hold one stream each"),
    "network.settings.transport_protocol": _transport,
    "tasks.*.function": _task_function,
    "tasks.*.kwargs.apply": _apply,
    "tasks.*.kwargs.metrics": _metrics,
    "tasks.*.kwargs.epochs": KeyOutcome(CARRIED, "training.local_epochs", ""),
    "tasks.*.kwargs.batch_size": KeyOutcome(CARRIED, "training.batch_size", "of the task that trains"),
    "tasks.*.kwargs.**": KeyOutcome(
        NONE, "", "an argument of your own training or validation code, which is not run"
    ),
    "tasks.*.aggregation_type.template": _aggregation,
    "tasks.*.aggregation_type.settings.**": KeyOutcome(
        NONE,
        "training.server_optimizer",
        "state learning_rate, momentum and second_momentum there if you need them",
    ),
    "assigner.template": _assigner,
    "assigner.settings.selected_task_group": KeyOutcome(
        NONE, "", "a round trains; to evaluate a model that is there use `fedfair aggregator evaluate`"
    ),
    "assigner.settings.task_groups.*.name": KeyOutcome(BUILT_IN, "", "there is one group: all sites"),
    "assigner.settings.task_groups.*.percentage": _percentage,
    "assigner.settings.task_groups.*.tasks": KeyOutcome(
        BUILT_IN, "", "a round trains; evaluations have their own rounds"
    ),
    "assigner.settings.task_groups.*.collaborators": KeyOutcome(NONE, "", "all sites have the same tasks"),
    "compression_pipeline.template": _pipeline,
    "compression_pipeline.settings.**": KeyOutcome(NONE, "secure_aggregation.ring_bits", "nothing is compressed"),
    "straggler_handling_policy.template": _stragglers,
    "straggler_handling_policy.settings.percent_collaborators_needed": KeyOutcome(
        CARRIED, "federation.min_collaborators", "as a number of sites, at least 2"
    ),
    "straggler_handling_policy.settings.minimum_reporting": KeyOutcome(
        CARRIED, "federation.min_collaborators", "at least 2: nobody's update may stand alone in a sum"
    ),
    "straggler_handling_policy.settings.straggler_cutoff_time": KeyOutcome(
        CARRIED, "federation.round_deadline_seconds", ""
    ),
    "straggler_handling_policy.settings.round_start_time": KeyOutcome(
        BUILT_IN, "", "a round begins when it is asked for"
    ),
    "task_runner.settings.device": KeyOutcome(
        CARRIED, "device", "each site's own file decides what it computes on"
    ),
}


def outcome_of(leaf: Leaf) -> KeyOutcome:
    """Return what becomes of a key; `UNKNOWN` for one that no row has."""
    if leaf.value == {}:
        return KeyOutcome(BUILT_IN, "", "it is empty")
    exact = TABLE.get(leaf.name)
    for pattern, rule in ((leaf.name, exact), *TABLE.items()):
        if rule is not None and _fits(pattern, leaf.key):
            return rule(leaf.value) if callable(rule) else rule
    return UNKNOWN


def finding_of(leaf: Leaf) -> Finding:
    """Return the finding about a key that the table decides."""
    found = outcome_of(leaf)
    return Finding(found.kind, leaf.place, leaf.name, shown_value(leaf.value), found.becomes, found.words)


def _fits(pattern: str, key: tuple[str, ...]) -> bool:
    parts = pattern.split(".")
    if parts[-1] == "**":
        parts = parts[:-1]
        if len(key) <= len(parts):
            return False
        key = key[: len(parts)]
    return len(parts) == len(key) and all(map(fnmatchcase, key, parts))
