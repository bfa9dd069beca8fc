"""The models that a plan can name, built the same way on every machine.

Decides architecture and initial weights, which are a function of the plan's seed and nothing else: the global
random generators are left as they were. Every model takes features (batch, *input_shape) and returns logits
(batch, classes), also with two classes, or what else the plan's loss takes. Training is `local_sgd.py`'s business.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from fedfair.errors import FedfairError, PlanError
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.module_code import load_callable
from fedfair.plan.parameters import LoraSection
from fedfair.plan.task import LinearModel, MlpModel, ModelSpec, ResnetModel
from fedfair.tables.seeds import derived_seed
from fedfair.training.lora import with_adapters
from fedfair.training.resnet import resnet18

TRIAL_BATCH = 2


def build_model(
    spec: ModelSpec,
    schema: FeatureSchema,
    seed: int,
    dtype: torch.dtype,
    workspace: Path,
    lora: LoraSection | None = None,
) -> nn.Module:
    """Return the plan's model with its initial weights, on the CPU.

    Args:
        spec: what the plan says under `task.model`.
        schema: what the model must accept and return.
        seed: the plan's seed.
        dtype: float32 or float64; weights are drawn in float32 and widened, so that both start alike.
        workspace: where a "module:function" is looked for.
        lora: the adapters that are put beside its layers; None for none.

    Raises:
        PlanError: the model does not fit the data, or the adapters not the model.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(derived_seed(seed, "initial weights"))
        model = _architecture(spec, schema, workspace).to(dtype)
        if lora is not None:
            with_adapters(model, lora)
        # Lazy layers draw their weights when they are first used, so the trial is seeded with the rest.
        _check_logits(model, spec, schema, dtype)
    return model


def linear(columns: int, classes: int, init: str) -> nn.Sequential:
    """Return one linear layer with bias; with `zeros` it starts as the uniform classifier."""
    model = mlp(columns, (), classes)
    if init == "zeros":
        for parameter in model.parameters():
            nn.init.zeros_(parameter)
    return model


def mlp(columns: int, hidden: Sequence[int], classes: int) -> nn.Sequential:
    """Return a multi-layer perceptron with ReLU; without hidden layers, one linear layer.

    Args:
        columns: number of values in one record; records of any shape are flattened.
        hidden: width of each hidden layer.
        classes: number of logits.
    """
    model = nn.Sequential()
    model.add_module("flatten", nn.Flatten())
    for place, width in enumerate(hidden, start=1):
        model.add_module(f"hidden{place}", nn.Linear(columns, width))
        model.add_module(f"relu{place}", nn.ReLU())
        columns = width
    model.add_module("output", nn.Linear(columns, classes))
    return model


def _architecture(spec: ModelSpec, schema: FeatureSchema, workspace: Path) -> nn.Module:
    columns = torch.Size(schema.input_shape).numel()
    outputs = 1 if schema.ordered else torch.Size(schema.output_shape).numel()
    match spec:
        case LinearModel(init=init):
            model = linear(columns, outputs, init)
            if schema.ordered and init == "zeros":
                nn.init.constant_(model.get_parameter("output.bias"), math.log(schema.classes - 1))
            return _shaped(model, schema)
        case MlpModel(hidden=hidden):
            return _shaped(mlp(columns, hidden, outputs), schema)
        case ResnetModel(norm=norm):
            return _shaped(resnet18(*_image_shape(schema), outputs, norm), schema)
        case _:
            return _from_module(spec, schema, workspace)


class OrderedBorders(nn.Module):
    """Makes cumulative logits of one score: each class' border lies above the last by a gap that is learnt.

    z_1 is the score, the logit of being above the first class, and z_k+1 = z_k - log(1 + exp(gap_k)). One slope
    for all borders: proportional odds (McCullagh 1980, "Regression models for ordinal data"). A model of zeros
    with these gaps gives every class the same chance.

    Args:
        classes: how many there are, at least 3.
    """

    def __init__(self, classes: int) -> None:
        super().__init__()
        above = torch.arange(classes - 1, 0, -1, dtype=torch.float64)
        logits = torch.log(above / (classes - above))
        self.gaps = nn.Parameter(torch.log(torch.expm1(logits[:-1] - logits[1:])).float())

    def forward(self, scores: Tensor) -> Tensor:
        """Return cumulative logits (batch, classes - 1) of scores (batch, 1)."""
        falls = nn.functional.softplus(self.gaps).cumsum(0)
        return torch.cat([scores, scores - falls], dim=1)


def _shaped(model: nn.Sequential, schema: FeatureSchema) -> nn.Module:
    """Return a model whose row of outputs gets the shape that the loss takes; a row stays one."""
    if schema.ordered and schema.classes > 2:
        model.add_module("borders", OrderedBorders(schema.classes))
    if len(schema.output_shape) > 1:
        model.add_module("shaped", nn.Unflatten(1, schema.output_shape))
    return model


def _image_shape(schema: FeatureSchema) -> tuple[int, int]:
    """Return channels and the smaller side, in pixels."""
    if len(schema.input_shape) != 3:
        raise PlanError(
            f"task.model: resnet18 needs images (channels, height, width), the data are {schema.input_shape}",
            "use mlp or linear, or data that are images",
        )
    channels, height, width = schema.input_shape
    return channels, min(height, width)


def _from_module(reference: str, schema: FeatureSchema, workspace: Path) -> nn.Module:
    build = load_callable(reference, workspace)
    try:
        model = build(schema)
    except FedfairError:
        raise
    except Exception as error:  # foreign code may raise anything; it becomes one clear fault
        raise PlanError(
            f"task.model: {reference} fails: {type(error).__name__}: {error}",
            "it is called with one FeatureSchema and returns the model",
        ) from error
    if not isinstance(model, nn.Module):
        raise PlanError(
            f"task.model: {reference} returned {type(model).__name__}, not a torch.nn.Module",
            "return the model; it is called with one FeatureSchema",
        )
    return model


def _check_logits(model: nn.Module, spec: ModelSpec, schema: FeatureSchema, dtype: torch.dtype) -> None:
    """Try the model on zeros, so that a misfit is found before anything is sent."""
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            logits = model(torch.zeros(TRIAL_BATCH, *schema.input_shape, dtype=dtype))
    except Exception as error:  # a "module:function" may raise anything here too
        raise PlanError(
            f"task.model: {spec} cannot take records of shape {schema.input_shape}: "
            f"{type(error).__name__}: {error}"
        ) from error
    model.train(was_training)
    expected = (TRIAL_BATCH, *schema.output_shape)
    if not isinstance(logits, Tensor) or tuple(logits.shape) != expected:
        kind, remedy = "logits", "return one logit for each class, also with two classes"
        if schema.outputs:
            kind, remedy = "outputs", "return what task.loss takes for each record"
        found = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise PlanError(
            f"task.model: {spec} returns {found} for {TRIAL_BATCH} records, expected {kind} {expected}",
            remedy,
        )
