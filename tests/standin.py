"""A device of another kind, for tests on machines without one: `standin:0`, whose numbers are computed on the CPU.

A tensor on it wraps one in the CPU's memory. As on a GPU, an operation takes tensors of one device (and scalars),
what goes from one to the other is a copy, and reading a value makes the CPU wait. Copies and waits are counted.
What it cannot show is what a GPU computes, how fast, and that memory is page-locked.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

if torch.cuda.is_available():
    # PyTorch has one accelerator in a process: beside this one, no backward pass works on a GPU.
    pytest.skip("a GPU is here: test_cuda.py asks it", allow_module_level=True)

NAME = "standin"
_setup_privateuseone_for_python_backend(NAME)
DEVICE = torch.device(NAME, 0)

Arguments = dict[str, Any]

WAITING = {torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default}
"""A value or a number of elements that the CPU must know before it continues."""


@dataclass(slots=True)
class Traffic:
    """What was copied, in values per copy, and where the CPU waited."""

    to_device: list[int] = field(default_factory=list)
    to_host: list[int] = field(default_factory=list)
    waits: list[str] = field(default_factory=list)

    def clear(self) -> None:
        self.to_device.clear()
        self.to_host.clear()
        self.waits.clear()


class Away(Tensor):
    """A tensor on the device."""

    inner: Tensor

    @staticmethod
    def __new__(cls: type[Self], inner: Tensor) -> Self:
        made = Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=DEVICE,
        )
        made.inner = inner
        return made

    def __repr__(self) -> str:
        return f"Away({self.inner})"

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., object],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Arguments | None = None,
    ) -> object:
        del types
        if func == Tensor.data.__set__:
            # The memory that a parameter is given must be the one that is computed with.
            args[0].inner = args[1].inner
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(
        cls,
        func: Callable[..., object],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Arguments | None = None,
    ) -> object:
        del types, args, kwargs
        raise AssertionError(f"{func} outside of the device's mode")


class _Mode(TorchDispatchMode):
    def __init__(self, traffic: Traffic) -> None:
        super().__init__()
        self._traffic = traffic

    def __torch_dispatch__(
        self,
        func: Callable[..., object],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Arguments | None = None,
    ) -> object:
        del types
        kwargs = dict(kwargs or {})
        if torch.is_inference_mode_enabled():
            # Only there do operations come whole that otherwise come in their parts.
            with self:
                parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        given = [value for value in pytree.tree_leaves((args, kwargs)) if isinstance(value, Tensor)]
        away = any(isinstance(value, Away) for value in given)
        target = kwargs.get("device")
        if func is torch.ops.aten.copy_.default:
            return self._copy_into(args[0], args[1])
        if func is torch.ops.aten._to_copy.default and target is not None:
            return self._copied_to(args[0], torch.device(target), kwargs)
        if target is not None and torch.device(target).type == NAME:
            away, kwargs["device"] = True, torch.device("cpu")
        if not away:
            return func(*args, **kwargs)
        for value in given:
            if not isinstance(value, Away) and value.dim():
                raise RuntimeError(f"{func} takes tensors on {DEVICE} and on the CPU")
        if func in WAITING:
            self._traffic.waits.append(str(func))
        inner_args, inner_kwargs = pytree.tree_map_only(Away, lambda value: value.inner, (args, kwargs))
        found = pytree.tree_map_only(Tensor, Away, func(*inner_args, **inner_kwargs))
        return return_and_correct_aliasing(func, args, kwargs, found) if given else found

    def _copy_into(self, target: Tensor, source: Tensor) -> Tensor:
        self._count(source, isinstance(target, Away))
        bare = (value.inner if isinstance(value, Away) else value for value in (target, source))
        torch.ops.aten.copy_.default(*bare)
        return target

    def _copied_to(self, source: Tensor, device: torch.device, kwargs: dict[str, object]) -> Tensor:
        self._count(source, device.type == NAME)
        bare = source.inner if isinstance(source, Away) else source
        found = torch.ops.aten._to_copy.default(bare, **(kwargs | {"device": torch.device("cpu")}))
        return Away(found) if device.type == NAME else found

    def _count(self, source: Tensor, to_device: bool) -> None:
        if isinstance(source, Away) and not to_device:
            self._traffic.to_host.append(source.numel())
            self._traffic.waits.append("copy to the host")
        elif not isinstance(source, Away) and to_device:
            self._traffic.to_device.append(source.numel())


@contextmanager
def standin() -> Iterator[Traffic]:
    """Make the device available, and count what happens."""
    traffic, before = Traffic(), torch._C._only_lift_cpu_tensors()
    # So that torch.tensor(..., device=...) makes a tensor on the CPU and copies it, in sight of the mode.
    torch._C._set_only_lift_cpu_tensors(True)
    try:
        with _Mode(traffic):
            yield traffic
    finally:
        torch._C._set_only_lift_cpu_tensors(before)
