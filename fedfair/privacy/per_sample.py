"""The gradient of every record by itself, in three ways that give the same result.

HOOKS keep one gradient for each record (Opacus's GradSampleModule): one backward pass, memory in proportion to
records times parameters. GHOST finds only the norms, from activations and their gradients (Opacus's fast gradient
clipping; Li et al. 2022, "Large Language Models Can Be Strong Differentially Private Learners"), and then sends
the weights backward through the same graph: two passes, the memory of one ordinary step. AUTO takes the closed
forms of `linear_layers.py` where the module is a row of linear layers, and HOOKS elsewhere. Decides what may be
trained this way, and proves it on a trial batch; clipping, weights and noise are `sample_level.py`'s.
Opacus takes seconds to import and is imported where it is used: most runs never need it.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, Protocol

import torch
from torch import Tensor, nn

from fedfair.errors import FedfairError, LocalProtocolError, PlanError
from fedfair.fairness.weighted_gradient import backward_weighted
from fedfair.privacy.linear_layers import (
    ALL_RECORDS,
    LinearGradients,
    gradient_of,
    is_row_of_linear_layers,
    joint_norms,
    lengths_of,
    most_summed,
    significand_bits,
    widened,
)
from fedfair.privacy.sensitivity import MAX_SUMMED

Way = Literal["auto", "hooks", "ghost"]

CPU_CACHE_BYTES, MIN_IN_CACHE, SHARE_OF_GPU, MAX_BYTES = 1 << 24, 8, 8, 1 << 29
"""So much of the gradients of single records is kept at a time. On a CPU 16 MB, about what its cache holds, for
more took up to twice the time; but 512 MB where those are fewer than eight records, because every part costs some
passes over the model. On a GPU an eighth of its memory: small parts would leave most of it idle."""


class PerSample(Protocol):
    """One way to treat the gradients of single records; it watches one module.

    Attributes:
        most_records: how many records fit in memory at a time.
        most_summed: how many `weigh` may add up for the sum to be off by no more than is accounted for.
        drops_unsound: whether a record whose gradient is not finite can be left out of a sum that has been begun.
    """

    most_records: int
    most_summed: int
    drops_unsound: bool

    def reset(self) -> None:
        """Forget what an earlier batch left behind; to be called before every forward pass."""

    def norms(self, losses: Tensor) -> Tensor:
        """Return the norm of each record's gradient: from losses (batch,), with their graph, to (batch,)."""

    def weigh(self, losses: Tensor, coefficients: Tensor, sound: Tensor, here: slice = ALL_RECORDS) -> None:
        """Set every parameter's gradient to the sum of coefficients (batch,) times the records' own gradients.

        Args:
            losses: of the batch whose norms were asked for last.
            coefficients: finite.
            sound: bool (batch,): False for a record whose gradient is not finite, and whose coefficient is 0.
                Where `drops_unsound` is False, such a record makes the gradient NaN.
            here: which records are added up; may be asked for one part after the other.
        """


class HookGradients:
    """Keeps the gradient of every record; see `PerSample`.

    Raises:
        PlanError: Opacus refuses the module.
    """

    drops_unsound = True

    def __init__(self, module: nn.Module) -> None:
        from opacus.grad_sample import GradSampleModule

        _validate(module)
        self._module, self._watching = module, GradSampleModule(module, loss_reduction="sum")
        self._parameters = list(_trainable(module))
        self.most_records = _most_records(self._parameters, sum(part.numel() for part in self._parameters))
        self.most_summed = min((most_summed(part) for part in self._parameters), default=1)

    def reset(self) -> None:
        """Forget what an earlier batch left behind."""
        _forget(self._module, "grad_sample")

    def norms(self, losses: Tensor) -> Tensor:
        """Return the norm of each record's gradient, (batch,)."""
        with _first_layer_in_silence():
            backward_weighted(losses)
        return joint_norms([lengths_of(gradients) for _, gradients in self._held()])

    def weigh(self, losses: Tensor, coefficients: Tensor, sound: Tensor, here: slice = ALL_RECORDS) -> None:  # noqa: ARG002 - one signature for both ways
        """Set every parameter's gradient to the weighted sum over the records at `here`."""
        unsound = ~sound[here].unsqueeze(1)
        for parameter in self._parameters:
            gradient_of(parameter).zero_()
        for parameter, everybodys in self._held():
            # Nothing times NaN is NaN. Looking whether there is one would make the CPU wait for a GPU.
            gradients = everybodys[here].masked_fill_(unsound, 0.0)
            if widened(gradients, len(gradients)):
                gradients = gradients.double()
            gradient_of(parameter).copy_((coefficients[here].to(gradients) @ gradients).view(parameter.shape))

    def _held(self) -> Iterator[tuple[nn.Parameter, Tensor]]:
        """Yield every parameter that the batch touched with its records' gradients, (batch, entries)."""
        for parameter in self._parameters:
            held = getattr(parameter, "grad_sample", None)
            if held is not None:
                yield parameter, held.flatten(1).to(parameter.dtype)


class GhostGradients:
    """Finds the norms and weighs by a second backward pass; see `PerSample`.

    Raises:
        PlanError: Opacus refuses the module.
    """

    drops_unsound = False

    def __init__(self, module: nn.Module) -> None:
        from opacus.grad_sample import GradSampleModuleFastGradientClipping

        _validate(module)
        self._module = module
        self._watching = GradSampleModuleFastGradientClipping(module, loss_reduction="sum")
        self._parameters = list(_trainable(module))
        # Only one layer's gradients of single records are in memory, and never those of a layer for whose norms
        # Opacus has a closed form.
        known = self._watching.NORM_SAMPLERS
        layers = (layer for layer in module.modules() if type(layer) not in known)
        kept = (parameter.numel() for layer in layers for parameter in layer.parameters(recurse=False))
        # A second pass adds up the whole batch in floats.
        self.most_summed = min((MAX_SUMMED[significand_bits(part.dtype)] for part in self._parameters), default=1)
        self.most_records = min(self.most_summed, _most_records(self._parameters, max(kept, default=1)))

    def reset(self) -> None:
        """Forget what an earlier batch left behind."""
        _forget(self._module, "grad_sample", "_norm_sample")
        self._watching.enable_hooks()

    def norms(self, losses: Tensor) -> Tensor:
        """Return the norm of each record's gradient, (batch,)."""
        with _first_layer_in_silence():
            backward_weighted(losses, keep_graph=True)
        found = (getattr(parameter, "_norm_sample", None) for parameter in self._parameters)
        return joint_norms([norms.to(losses.dtype) for norms in found if norms is not None])

    def weigh(self, losses: Tensor, coefficients: Tensor, sound: Tensor, here: slice = ALL_RECORDS) -> None:  # noqa: ARG002 - one signature for both ways
        """Set every parameter's gradient to the weighted sum over the records; NaN if one is not finite.

        Raises:
            LocalProtocolError: only some of the records are asked for, and the graph serves one pass.
        """
        if here != ALL_RECORDS and not (here.start == 0 and here.stop >= len(losses)):
            raise LocalProtocolError("ghost clipping adds up all records of a pass at once")
        self._watching.disable_hooks()
        for parameter in self._parameters:
            gradient_of(parameter).zero_()
        with _first_layer_in_silence():
            backward_weighted(losses, coefficients)


def per_sample_gradients(module: nn.Module, way: Way) -> PerSample:
    """Return how the gradients of single records are treated; the module is watched from then on.

    Args:
        module: in training mode; every trainable parameter has a gradient of its own shape.
        way: auto, hooks or ghost.

    Raises:
        PlanError: the module cannot be trained with differential privacy; the message says why and what to do.
    """
    if way == "auto" and is_row_of_linear_layers(module):
        return LinearGradients(module)
    return GhostGradients(module) if way == "ghost" else HookGradients(module)


LossOfRecords = Callable[[Tensor, Tensor], Tensor]
"""From a model's outputs and the records' answers to their losses (batch,)."""


def check_by_trial(
    module: nn.Module, gradients: PerSample, features: Tensor, labels: Tensor, loss: LossOfRecords
) -> None:
    """Refuse a module whose norms are not those of its records alone, found on a trial batch.

    That is what every promise rests on, and what no list of layers can prove: a module may mix records, keep
    something of them in a buffer, or use a layer in a way that Opacus overlooks.

    Args:
        module: watched by `gradients`, in training mode.
        gradients: of that module.
        features: tensor (batch, *input_shape), at least 2 records.
        labels: the records' answers, tensor (batch, ...).
        loss: of each record.

    Raises:
        PlanError: the norms differ, a buffer changed, or the module fails.
    """
    resting = [layer for layer in module.modules() if isinstance(layer, nn.modules.dropout._DropoutNd)]  # noqa: SLF001 - torch has no other name for all of them
    before = [buffer.clone() for buffer in module.buffers()]
    try:
        for layer in resting:
            layer.eval()
        gradients.reset()
        together = gradients.norms(loss(module(features), labels)).detach()
        single = zip(torch.split(features, 1), torch.split(labels, 1), strict=True)
        alone = torch.cat([_norm_alone(module, gradients, *record, loss) for record in single])
        gradients.reset()
    except FedfairError:
        raise
    except Exception as error:  # a module of the plan's own may raise anything, and Opacus has many exceptions
        raise PlanError(
            f"privacy.sample_level: the model has no gradients of single records: {type(error).__name__}: {error}",
            "avoid operations in place, and try privacy.sample_level.gradients: hooks",
        ) from error
    finally:
        for layer in resting:
            layer.train()
        for parameter in _trainable(module):
            gradient_of(parameter).zero_()
    if any(not torch.equal(old, new) for old, new in zip(before, module.buffers(), strict=True)):
        raise PlanError(
            "privacy.sample_level: the model keeps something of its records in a buffer, which no noise covers",
            "keep no running statistics",
        )
    # The same gradients are added up in another order: in float32 that is off by a few millionths of the norm.
    if not torch.allclose(together, alone, rtol=1e-3, atol=1e-6 * float(alone.max())):
        raise PlanError(
            "privacy.sample_level: a record's gradient depends on others in its batch, or cannot be told",
            "replace what mixes records (GroupNorm instead of BatchNorm), draw by nn.Dropout only, or try "
            "privacy.sample_level.gradients: hooks",
        )


def _norm_alone(
    module: nn.Module, gradients: PerSample, features: Tensor, labels: Tensor, loss: LossOfRecords
) -> Tensor:
    """Return, without anything of Opacus's, the norm (1,) of the gradient of one record."""
    gradients.reset()
    parameters = list(_trainable(module))
    own = loss(module(features), labels).sum()
    with _first_layer_in_silence():
        found = torch.autograd.grad(own, parameters, allow_unused=True)
    squares = [gradient.square().sum() for gradient in found if gradient is not None]
    return torch.stack(squares).sum().sqrt().reshape(1)


def _validate(module: nn.Module) -> None:
    from opacus.grad_sample import GradSampleModule
    from opacus.validators import ModuleValidator

    errors = [*ModuleValidator.validate(module), *GradSampleModule.validate(module)]
    if errors:
        names = {id(layer): name for name, layer in module.named_modules()}
        refused = sorted(
            f"{names[id(layer)] or 'the model'} ({type(layer).__name__})"
            for layer in module.modules()
            if any(True for _ in layer.parameters(recurse=False))
            and (any(True for _ in layer.buffers(recurse=False)) or _is_refused(layer))
        )
        raise PlanError(
            f"privacy.sample_level: Opacus refuses layers of the model: {', '.join(refused) or 'all of it'}",
            "use GroupNorm or LayerNorm for BatchNorm, and Opacus's DPLSTM, DPGRU and DPMultiheadAttention",
        )


def _is_refused(layer: nn.Module) -> bool:
    from opacus.validators import ModuleValidator

    return type(layer) in ModuleValidator.VALIDATORS and bool(ModuleValidator.VALIDATORS[type(layer)](layer))


def _trainable(module: nn.Module) -> Iterator[nn.Parameter]:
    return (parameter for parameter in module.parameters() if parameter.requires_grad)


def _most_records(parameters: Sequence[nn.Parameter], entries: int) -> int:
    """Return how many records' gradients, each with so many entries, are kept at a time; always the same here."""
    if not parameters:
        return 1
    device, width = parameters[0].device, parameters[0].element_size()
    each, most = width * max(1, entries), MAX_BYTES
    if device.type == "cuda":
        most = torch.cuda.get_device_properties(device).total_memory // SHARE_OF_GPU
    elif device.type == "cpu" and MIN_IN_CACHE * each <= CPU_CACHE_BYTES:
        most = CPU_CACHE_BYTES
    return max(1, most // each)


@contextmanager
def _first_layer_in_silence() -> Iterator[None]:
    """Say nothing of the first layer's hook: nobody wants the gradient of records, and Opacus does not use it.

    Asking for that gradient would silence PyTorch too, for the price of another product of matrices.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Full backward hook is firing", UserWarning)
        yield


def _forget(module: nn.Module, *attributes: str) -> None:
    """Drop what Opacus keeps on parameters and layers, also of a pass that failed half-way."""
    for parameter, name in itertools.product(_trainable(module), attributes):
        setattr(parameter, name, None)
    for parameter in _trainable(module):
        parameter._forward_counter = 0  # type: ignore[attr-defined]  # noqa: SLF001 - Opacus resets it nowhere
    for layer in module.modules():
        for name in ("activations", "max_batch_len"):
            if hasattr(layer, name):
                delattr(layer, name)
