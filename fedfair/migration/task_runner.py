"""OpenFL's PyTorchTaskRunner as a model: layers and forward pass travel, the training loop stays behind.

Decides which class a plan means, what of it is the model, and what its code says about optimiser, loss and
output. The model is a function `build` in the sense of a plan's `task.model`. A model that cannot travel
becomes a `build` that refuses in words until somebody has written it. Source: OpenFL 1.5 to 1.9,
`openfl.federated`.
"""

from __future__ import annotations

import ast
import keyword
from collections.abc import Mapping
from dataclasses import dataclass, replace

from fedfair.errors import PlanError
from fedfair.migration.carried_class import ClassRules, Method, carry_class, dotted
from fedfair.migration.findings import Finding, FindingKind
from fedfair.migration.source_modules import FOREIGN, Collection, Obstacle, SourceModule, unfilled
from fedfair.plan.yaml_reader import Value

PYTORCH = "PyTorchTaskRunner"
OTHERS = {
    "KerasTaskRunner": "Keras",
    "TensorFlowTaskRunner": "TensorFlow",
    "XGBoostTaskRunner": "XGBoost",
    "FlowerTaskRunner": "Flower",
    "GaNDLFTaskRunner": "GaNDLF",
    "FastEstimatorTaskRunner": "FastEstimator",
    "FederatedAnalyticsTaskRunner": "federated analytics",
}

_OF_MODULES = frozenset({
    "parameters", "named_parameters", "modules", "named_modules", "children", "named_children", "buffers",
    "named_buffers", "train", "eval", "to", "cpu", "cuda", "float", "double", "half", "training", "state_dict",
    "load_state_dict", "register_buffer", "register_parameter", "register_module", "add_module", "apply",
    "requires_grad_", "zero_grad", "get_submodule", "forward", "schema", "register_forward_hook",
})  # fmt: skip
"""Attributes of every torch.nn.Module that code of a model may use."""

_DROPPED = frozenset({
    "optimizer", "loss_fn", "loss", "criterion", "lr_scheduler", "scheduler", "device", "logger", "data_loader",
    "required_tensorkeys_for_function", "training_round_completed", "tensor_dict_split_fn_kwargs",
})  # fmt: skip
_CALLS = frozenset({
    "initialize_tensorkeys_for_functions", "initialize_globals", "set_logger", "set_optimizer_treatment",
    "set_required_tensorkeys_for_functions", "set_data_loader", "reset_opt_vars",
})  # fmt: skip
_DECIDING = frozenset({
    "state_dict", "load_state_dict", "parameters", "named_parameters", "get_tensor_dict", "set_tensor_dict",
})  # fmt: skip
"""Methods by which a task runner may share other weights than all of its own."""

_LOOPS = {
    "train_", "validate_", "train", "validate", "train_task", "validate_task", "train_batches", "train_epoch",
}  # fmt: skip

_STATE = frozenset({
    "reset_opt_vars", "save_native", "load_native", "rebuild_model", "get_required_tensorkeys_for_function",
    "initialize_tensorkeys_for_functions", "get_optimizer",
})  # fmt: skip
"""Methods about the state of a run, which fedfair keeps and saves."""

_SHAPES = {
    "get_feature_shape()": "list(self.schema.input_shape)",
    "feature_shape": "list(self.schema.input_shape)",
}
_CLASSES = {"get_num_classes()": "self.schema.classes", "num_classes": "self.schema.classes"}
_LOADERS = ("self.data_loader.", "data_loader.", "self.get_data_loader().", "kwargs['data_loader'].")
_DEVICE = 'next((one.device for one in self.parameters()), "cpu")'

UNFINISHED = '''
def build(schema):
    """Return the model with its initial weights: from (batch, *schema.input_shape) to (batch, schema.classes)."""
    # TODO by hand, then remove this line. MIGRATION.md says why it could not be carried over.
    raise NotImplementedError("{path}: the model of {origin} is not written yet: complete `build`")
'''

BUILD = '''
def build(schema):
    """Return the model with its initial weights, which follow from `training.seed` of the plan."""
    return {call}
'''

DELEGATE = """

    def forward(self, features):
        return self.model(features)
"""


@dataclass(frozen=True, slots=True)
class LocalOptimizer:
    """The optimiser that the old code makes at a site.

    Attributes:
        name: of its class, such as Adam.
        rate: its learning rate; None where it is not a number in the code or the settings.
        momentum: whether it has one.
        place: file and line.
    """

    name: str
    rate: float | None
    momentum: bool
    place: str


@dataclass(frozen=True, slots=True)
class MigratedModel:
    """The model's part of the new module.

    Attributes:
        pieces: source texts, in order; the last is the function `build`.
        is_whole: whether it runs as it is.
        optimizer: of the old code; None where none was found.
        findings: about its code.
    """

    pieces: tuple[str, ...]
    is_whole: bool
    optimizer: LocalOptimizer | None
    findings: tuple[Finding, ...]


def find_class(
    template: Value, place: str, key: str, sources: Mapping[str, SourceModule]
) -> tuple[SourceModule, ast.ClassDef]:
    """Return the class that a plan's `template` names, and its module.

    Raises:
        PlanError: the template is no name of a class, or the workspace does not have it.
    """
    if not isinstance(template, str) or "." not in template:
        raise PlanError(
            f"{place}: {key} is {template!r}, not the name of a class", "write it like src.taskrunner.MyTaskRunner"
        )
    origin, _, name = template.rpartition(".")
    for base, framework in OTHERS.items():
        if name == base:
            raise PlanError(f"{place}: {key} {template} runs {framework} and has no PyTorch module", _REWRITE)
    module = sources.get(origin)
    if origin.partition(".")[0] == FOREIGN:
        raise PlanError(
            f"{place}: {key} {template} is a class of OpenFL itself, and none of this workspace", _REWRITE
        )
    if module is None:
        known = ", ".join(sorted(sources)) or "none"
        raise PlanError(
            f"{place}: {key} {template}: the workspace has no file {origin.replace('.', '/')}.py",
            f"give the workspace with its code, or correct the name; its modules are {known}",
        )
    for statement in module.bindings.get(name, ()):
        if isinstance(statement, ast.ClassDef):
            return module, statement
    known = ", ".join(one.name for one in module.tree.body if isinstance(one, ast.ClassDef)) or "none"
    raise PlanError(f"{place}: {key} {template}: {module.path} has no class {name}", f"its classes are {known}")


_REWRITE = "only a PyTorchTaskRunner can be carried over: write its model anew (`fedfair plan new-module`)"


def check_framework(
    module: SourceModule, node: ast.ClassDef, place: str, key: str, sources: Mapping[str, SourceModule]
) -> bool:
    """Return whether a class derives from PyTorchTaskRunner directly, not through another of the workspace.

    Raises:
        PlanError: it is a task runner of another framework, or none.
    """
    seen: set[str] = set()
    ancestors = [(module, node)]
    while ancestors:
        owner, current = ancestors.pop()
        seen.add(current.name)
        for base in current.bases:
            name = dotted(base).rpartition(".")[2]
            if name == PYTORCH:
                return current is node
            if name in OTHERS:
                raise PlanError(
                    f"{owner.place(current)}: {current.name} is a {name}: {key} ({place}) runs {OTHERS[name]}, "
                    "not PyTorch",
                    _REWRITE,
                )
            ancestors += _above(owner, name, sources, seen)
    known = ", ".join(dotted(base) or "?" for base in node.bases) or "nothing"
    raise PlanError(f"{module.place(node)}: {node.name} derives from {known}, not from {PYTORCH}", _REWRITE)


def _above(
    module: SourceModule, name: str, sources: Mapping[str, SourceModule], seen: set[str]
) -> list[tuple[SourceModule, ast.ClassDef]]:
    """Return the class of the workspace that a base's name means, if it is one."""
    found: list[tuple[SourceModule, ast.ClassDef]] = []
    for statement in module.bindings.get(name, ()):
        if isinstance(statement, ast.ClassDef) and name not in seen:
            found.append((module, statement))
        elif isinstance(statement, ast.ImportFrom):
            for other in sources.values():
                named = other.bindings.get(name, ())
                found += [(other, one) for one in named if isinstance(one, ast.ClassDef) and name not in seen]
    return found


def migrate_model(
    module: SourceModule,
    node: ast.ClassDef,
    settings: Mapping[str, Value],
    collection: Collection,
    *,
    direct: bool,
    path: str,
) -> MigratedModel:
    """Return the model's part of the new module.

    Args:
        module: of the task runner.
        node: its class.
        settings: `task_runner.settings`, without the device.
        collection: gets the imports and definitions that the model needs.
        direct: whether the class derives from PyTorchTaskRunner directly.
        path: of the new module, for its own words.
    """
    obstacles = unfilled(module)
    if not direct:
        words = "derives from another class of the workspace: put both into one, and migrate again"
        obstacles.append(Obstacle(module.place(node), node.name, words))
    rules = ClassRules(
        base="torch.nn.Module",
        entries=("__init__", "forward"),
        parameter="schema",
        start="super().__init__()\nself.schema = schema",
        inherited=_OF_MODULES,
        dropped_attributes=_DROPPED,
        dropped_calls=_CALLS,
        rewrite=_rewrite,
        owner=PYTORCH,
    )
    if "self.schema." not in carry_class(module, node, rules, Collection(collection.sources)).text:
        rules = replace(rules, parameter="", start="super().__init__()")
    carried = carry_class(module, node, rules, collection)
    text = carried.text
    methods = {one.name: one for one in node.body if isinstance(one, Method)}
    if "forward" not in methods:
        if "model" in carried.attributes:
            text += DELEGATE
        else:
            words = "has neither a method forward nor an attribute model, so its layers are unknown"
            obstacles.append(Obstacle(module.place(node), node.name, words))
    for name in sorted(_DECIDING & methods.keys()):
        words = "decides which weights are shared: write a model whose parameters are those that are to be trained"
        obstacles.append(Obstacle(module.place(methods[name]), f"{node.name}.{name}", words))
    call, faults = _call(module, node, settings, rules.parameter)
    obstacles += [*faults, *collection.obstacles]
    findings = [*_code_findings(module, node, carried.dropped, collection.sources)]
    optimizer = _optimizer(module, node, settings)
    if obstacles:
        told = [_finding(FindingKind.BY_HAND, one.place, one.name, "task.model", one.words) for one in obstacles]
        origin = f"{module.path} ({node.name})"
        unfinished = UNFINISHED.format(path=path, origin=origin)
        return MigratedModel((unfinished.strip(),), False, optimizer, (*told, *findings))
    collection.imports["import torch"] = None
    pieces = (*collection.pieces, text, BUILD.format(call=call).strip())
    findings += _output_findings(pieces, module, node)
    return MigratedModel(pieces, True, optimizer, tuple(findings))


def _finding(kind: FindingKind, place: str, key: str, becomes: str, words: str) -> Finding:
    return Finding(kind, place, key, "", becomes, words)


def _rewrite(node: ast.expr) -> str | None:
    """Return what stands for OpenFL's word about the data or the device."""
    if not isinstance(node, ast.Attribute | ast.Call) or not isinstance(
        getattr(node, "ctx", ast.Load()), ast.Load
    ):
        return None
    text = ast.unparse(node)
    if text == "self.device":
        return _DEVICE
    if text == "self.feature_shape":
        return _SHAPES["feature_shape"]
    for loader in _LOADERS:
        if text.startswith(loader):
            name = text.removeprefix(loader)
            return _SHAPES.get(name) or _CLASSES.get(name)
    return None


def _call(
    module: SourceModule, node: ast.ClassDef, settings: Mapping[str, Value], schema: str
) -> tuple[str, list[Obstacle]]:
    """Return the call that makes the model, and why there is none."""
    start = next((one for one in node.body if isinstance(one, Method) and one.name == "__init__"), None)
    if start is None:
        return "", []  # The class itself is an obstacle then.
    arguments, place = start.args, module.place(start)
    named = [one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)][1:]
    needed = {one.arg for one in arguments.args[1 : len(arguments.args) - len(arguments.defaults)]}
    needed |= {
        one.arg for one, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if value is None
    }
    given: dict[str, str] = {
        name: repr(value) for name, value in settings.items() if name in named or arguments.kwarg is not None
    }
    if "data_loader" in needed:
        given["data_loader"] = "None"
    if "device" in needed:
        given["device"] = '"cpu"'
    words = "{} is no name of an argument: rename it in the plan and in the code"
    faults = [
        Obstacle(place, node.name, words.format(name))
        for name in given
        if not name.isidentifier() or keyword.iskeyword(name)
    ]
    words = "takes an argument {} that task_runner.settings does not give"
    faults += [
        Obstacle(place, f"{node.name}.__init__", words.format(name)) for name in sorted(needed - given.keys())
    ]
    words_of_call = [*([schema] if schema else []), *(f"{name}={text}" for name, text in given.items())]
    return f"{node.name}({', '.join(words_of_call)})", faults


def _assigned(node: ast.ClassDef, attribute: str) -> list[ast.Assign]:
    return [
        one
        for one in ast.walk(node)
        if isinstance(one, ast.Assign) and any(dotted(target) == f"self.{attribute}" for target in one.targets)
    ]


def _optimizer(module: SourceModule, node: ast.ClassDef, settings: Mapping[str, Value]) -> LocalOptimizer | None:
    for statement in _assigned(node, "optimizer"):
        if isinstance(statement.value, ast.Call) and dotted(statement.value.func):
            call = statement.value
            words = {word.arg: word.value for word in call.keywords}
            rate = words.get("lr") or (call.args[1] if len(call.args) > 1 else None)
            name = dotted(call.func).rpartition(".")[2]
            return LocalOptimizer(name, _number(rate, settings), "momentum" in words, module.place(statement))
    return None


def _number(node: ast.expr | None, settings: Mapping[str, Value]) -> float | None:
    """Return a number that is written in the code, or in the settings under the name that the code has."""
    if node is None:
        return None
    named = dotted(node).rpartition(".")[2]
    value: object = settings.get(named) if named else None
    if not named:
        try:
            value = ast.literal_eval(node)
        except (ValueError, TypeError):
            return None
    found = isinstance(value, int | float) and not isinstance(value, bool) and value > 0
    return float(value) if found and isinstance(value, int | float) else None


def _code_findings(
    module: SourceModule, node: ast.ClassDef, dropped: tuple[Method, ...], sources: Mapping[str, SourceModule]
) -> list[Finding]:
    findings = []
    loops = "its loop is not carried over: fedfair trains and evaluates by itself; look for what this does besides"
    other = "not reached from __init__ or forward, so it was left behind"
    for method in dropped:
        name, place = f"{node.name}.{method.name}", module.place(method)
        if method.name in _STATE:
            findings.append(
                _finding(FindingKind.BUILT_IN, place, name, "", "fedfair keeps and saves the state of a run")
            )
            continue
        becomes = "training" if method.name in _LOOPS else ""
        words = loops if method.name in _LOOPS else other
        findings.append(_finding(FindingKind.NO_COUNTERPART, place, name, becomes, words))
    return findings + [_loss(module, statement, sources) for statement in _assigned(node, "loss_fn")]


def _loss(module: SourceModule, statement: ast.Assign, sources: Mapping[str, SourceModule]) -> Finding:
    value = statement.value
    name = dotted(value.func) if isinstance(value, ast.Call) else dotted(value)
    last = name.rpartition(".")[2]
    bare = not (isinstance(value, ast.Call) and (value.args or value.keywords))
    place = module.place(statement)
    if bare and (last in {"cross_entropy", "CrossEntropyLoss"} or _only_cross_entropy(module, name, sources)):
        return _finding(
            FindingKind.BUILT_IN, place, name, "objective", "the cross-entropy of each record is the loss"
        )
    if bare and last in {"nll_loss", "NLLLoss"}:
        words = "cross-entropy: log-probabilities are logits as well, so the model may keep its log_softmax"
        return _finding(FindingKind.BUILT_IN, place, name, "objective", words)
    words = (
        "the loss of a federation is the cross-entropy of each record, for classes; another loss is not taken over"
    )
    return _finding(FindingKind.NO_COUNTERPART, place, name or ast.unparse(value)[:40], "objective", words)


def _only_cross_entropy(module: SourceModule, name: str, sources: Mapping[str, SourceModule]) -> bool:
    """Return whether a name means a function of the workspace that does nothing but call the cross-entropy."""
    for owner in (module, *sources.values()):
        for one in owner.bindings.get(name, ()):
            if isinstance(one, ast.FunctionDef):
                calls = [node for node in ast.walk(one) if isinstance(node, ast.Call)]
                return len(calls) == 1 and dotted(calls[0].func).endswith("cross_entropy") and len(one.body) <= 2
    return False


_READ = {"from_pretrained", "load_state_dict_from_url", "load"}


def _is_pretrained(call: ast.Call) -> bool:
    return any(
        word.arg in {"pretrained", "weights"} and getattr(word.value, "value", True) not in (False, None)
        for word in call.keywords
    )


_SQUASHED = {"softmax", "Softmax", "sigmoid", "Sigmoid"}


def _output_findings(pieces: tuple[str, ...], module: SourceModule, node: ast.ClassDef) -> list[Finding]:
    """Return what the model's code has that fedfair's training or evaluation would not expect."""
    findings = []
    calls = [one for text in pieces for one in ast.walk(ast.parse(text)) if isinstance(one, ast.Call)]
    names = {dotted(one.func).rpartition(".")[2] for one in calls}
    for name in sorted(names & _SQUASHED):
        words = (
            f"the model calls {name}: its output must be logits (batch, classes), so remove it from the last layer"
        )
        findings.append(_finding(FindingKind.BY_HAND, module.place(node), node.name, "task.model", words))
    loose = [
        one for one in calls
        if dotted(one.func).endswith("F.dropout") and not {"training"} & {word.arg for word in one.keywords}
    ]  # fmt: skip
    if loose:
        words = "F.dropout without training=self.training also drops in evaluations: add it"
        findings.append(_finding(FindingKind.BY_HAND, module.place(node), node.name, "task.model", words))
    read = [one for one in calls if dotted(one.func).rpartition(".")[2] in _READ or _is_pretrained(one)]
    if read:
        words = (
            "the model reads weights when it is made: put them beside the module, so that all sites have the same"
        )
        findings.append(_finding(FindingKind.BY_HAND, module.place(node), node.name, "task.model", words))
    if any(name.startswith("BatchNorm") for name in names):
        words = "BatchNorm's statistics are averaged over sites; GroupNorm has none (docs/how-to/own-module.md)"
        findings.append(_finding(FindingKind.BY_HAND, module.place(node), node.name, "task.model", words))
    return findings
