"""Initial weights from a file: whose they may be, how they are read, and what of them a model takes.

Three kinds of file. A model that fedfair has saved says what it takes and returns, its threshold and its scaling,
and all of it is compared with the plan. A plain `.safetensors` file and a state dict of torch (`.pt`, `.pth`) hold
tensors by name, and nothing else is known of them. None of them can run code: torch reads with `weights_only`.

Decides which tensors a model takes. Every tensor of the model comes from the file unless its name is allowed to be
missing; then it keeps the plan's own values. Nothing else in the file is left aside in silence, but counters of
whole numbers that no layout holds. Numbers of 16 bits are widened exactly; those of 64 bits are rounded to 32
where the model has 32.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from torch import Tensor

from fedfair.aggregation.model_layout import Layout, LayoutEntry
from fedfair.aggregation.requests import FeatureScaling
from fedfair.errors import DataError
from fedfair.run.model_description import ModelDescription, difference
from fedfair.run.saved_model import read_saved
from fedfair.tables.text_table import listed
from fedfair.training.flat_model import FlatModel
from fedfair.training.travelling import distinct_tensors, first_names

Array = NDArray[np.floating]

OVERHEAD_BYTES = 64 << 20
"""The bytes that a file may have beside the numbers: names, shapes, and a checkpoint's own bookkeeping."""

MOST_WIDTH = 8
SHOWN = 5
NESTED = ("state_dict", "model_state_dict", "model")
"""Where a checkpoint of torch keeps the state dict of its model."""

_WIDTHS = {
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.float32: "float32",
    torch.float64: "float64",
}


@dataclass(frozen=True, slots=True)
class Allowance:
    """The differences between a file and the model that somebody has agreed to.

    Attributes:
        missing: names or patterns of the model's tensors that keep the plan's own values.
        extra: names or patterns of tensors of the file that the model does not have.
    """

    missing: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()


STRICT = Allowance()


@dataclass(frozen=True, slots=True)
class ImportedWeights:
    """The weights that a model takes from a file, and what there is to say of it.

    Attributes:
        vector: array (d,) in the layout's width.
        threshold: that of the file; None where it says none.
        scaling: of the features that the weights were trained with; None where the file says none.
        kept: names of the tensors that keep the plan's own values.
        ignored: names of tensors of the file that are not taken.
        cast: in words, how numbers were widened or rounded; empty where they are as in the file.
        is_described: whether the file says what its model takes and returns.
        fine_tuned_at: the site that fine-tuned the model on its own records; empty for any other.
        sites: digest of the sites that have evaluated the very model of the file; None where that is not known.
    """

    vector: Array = field(repr=False)
    threshold: float | None = None
    scaling: FeatureScaling | None = None
    kept: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    cast: tuple[str, ...] = ()
    is_described: bool = False
    fine_tuned_at: str = ""
    sites: bytes | None = None


@dataclass(frozen=True, slots=True)
class _Found:
    """The content of a file."""

    tensors: Mapping[str, Tensor] = field(repr=False)
    description: ModelDescription | None = None
    threshold: float | None = None
    scaling: FeatureScaling | None = None
    fine_tuned_at: str = ""
    sites: bytes | None = None


def import_weights(
    path: Path, model: FlatModel, description: ModelDescription, allowed: Allowance = STRICT
) -> ImportedWeights:
    """Return what a model takes from a file.

    Args:
        path: the file.
        model: the plan's model before round 1, as the seed makes it.
        description: of that model, by the plan.
        allowed: differences that somebody has agreed to.

    Raises:
        DataError: the file is missing, too large, unreadable, or of another model; or a tensor is missing,
            unknown, of another shape, of no floating-point type, or holds a NaN or an infinity.
    """
    layout = model.layout
    _check_size(path, layout)
    found = _read(path)
    _check_described(path, found, description, partial=bool(allowed.missing))
    aliases = _aliases(model)
    tensors = {aliases.get(name, name): tensor for name, tensor in found.tensors.items()}
    kept = _matching([entry.name for entry in layout.entries], allowed.missing, "--allow-missing", "the model")
    if len(kept) == len(layout.entries):
        raise DataError(
            f"--allow-missing names every tensor of the model, so that nothing of {path} would be taken",
            "name only those that keep the plan's own values; or begin with the seed, without --from",
        )
    ignored = _ignored(path, found, model, layout, allowed, kept)
    vector, cast = model.vector(), dict[str, int]()
    faults = []
    for entry, place in layout.slices():
        if entry.name in kept:
            continue
        tensor = tensors.get(entry.name)
        fault = _fault(entry, tensor)
        if fault or tensor is None:
            faults.append(fault)
            continue
        vector[place] = _cast(path, entry, tensor, layout, cast)
    if faults:
        _refuse(path, faults)
    words = tuple(f"{count} tensors of {name}" for name, count in cast.items())
    return ImportedWeights(
        vector,
        found.threshold,
        found.scaling,
        tuple(sorted(kept)),
        tuple(sorted(ignored)),
        words,
        found.description is not None,
        found.fine_tuned_at,
        # With other values somewhere it is another model, which nobody has evaluated.
        None if kept or ignored or words else found.sites,
    )


# ------------------------------------------------------------------ reading


def _check_size(path: Path, layout: Layout) -> None:
    try:
        size = path.stat().st_size
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}", "give the file of a model") from error
    if not path.is_file():
        raise DataError(f"{path} is no file", "give the file of a model")
    most = MOST_WIDTH * layout.dimension * 2 + OVERHEAD_BYTES
    if size > most:
        raise DataError(
            f"{path} has {size} bytes; the plan's model has {layout.dimension} values, for which {most} bytes are "
            "enough",
            "give the state dict of the model alone, without the state of an optimizer",
        )


def _read(path: Path) -> _Found:
    if path.suffix.lower() in {".pt", ".pth", ".bin"}:
        return _Found(_read_torch(path))
    words, tensors = _read_safetensors(path)
    if words.get("format", "").startswith("fedfair/initial-model"):
        raise DataError(
            f"{path} is the model before round 1 of some plan, and does not say what it takes and returns",
            "give the file that it was made from, or a model that fedfair has saved",
        )
    if "fedfair" not in words:
        return _Found(tensors)
    saved = read_saved(path)
    layout, model, origin = saved.layout, saved.saved, saved.origin
    # Read again by fedfair's own rules, so that what was damaged since is not taken.
    values = {name: torch.from_numpy(array) for name, array in layout.unflatten(model.model.vector).items()}
    said = (origin.description, model.model.threshold, model.scaling, origin.fine_tuned_at, origin.sites)
    return _Found(values, *said)


def _read_safetensors(path: Path) -> tuple[Mapping[str, str], dict[str, Tensor]]:
    try:
        with safe_open(path, framework="pt") as file:
            return file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, ValueError) as error:
        raise DataError(
            f"{path} is no safetensors file that can be read: {error}",
            "give a model that fedfair has saved, a .safetensors file, or a state dict of torch that ends in .pt",
        ) from error


def _read_torch(path: Path) -> dict[str, Tensor]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # what somebody else has written may raise anything; it becomes one clear fault
        raise DataError(
            f"{path} {_reason(path, str(error))}",
            "save the tensors alone where it was made: `torch.save(model.state_dict(), FILE)`, or as .safetensors",
        ) from error
    if isinstance(content, dict) and not all(isinstance(value, Tensor) for value in content.values()):
        content = next((content[key] for key in NESTED if isinstance(content.get(key), dict)), content)
    if not isinstance(content, dict) or not all(
        isinstance(name, str) and isinstance(value, Tensor) for name, value in content.items()
    ):
        raise DataError(
            f"{path} holds {type(content).__name__}, which is no mapping from names to tensors",
            "save the tensors alone where it was made: `torch.save(model.state_dict(), FILE)`",
        )
    return dict(content)


def _reason(path: Path, words: str) -> str:
    """Return why torch did not read a file; its own words tell how to run the code in it."""
    if not path.stat().st_size:
        return "is empty"
    if "TorchScript" in words:
        return "holds a compiled module (TorchScript), which is code; no code of a file is run"
    named = re.search(r"GLOBAL ([\w.]+)", words)
    if named is not None:
        return f"holds {named[1]}, which is code or an object, no tensor; no code of a file is run"
    return "is no file of tensors that torch can read without running code from it; or it is cut off or damaged"


def _check_described(path: Path, found: _Found, own: ModelDescription, *, partial: bool) -> None:
    theirs = found.description
    if theirs is None:
        return
    # A file of the whole model may begin a plan that freezes some of it.
    theirs = theirs.model_copy(update={"parameters": own.parameters})
    if partial:
        # Another head is another label; what the features are must be the same all the same.
        theirs = theirs.model_copy(
            update={"label": own.label, "source": own.source, "architecture": own.architecture}
        )
    other = difference(theirs, own)
    if other:
        raise DataError(
            f"{path} holds a model of another plan: {other}",
            "give a model of this task; or another plan; for another head name its tensors with --allow-missing",
        )


# ------------------------------------------------------------------ which tensors


def _aliases(model: FlatModel) -> dict[str, str]:
    """Return, for each further name of a tied tensor, the name by which the layout knows it."""
    names = first_names(model.module, distinct_tensors(model.module))
    return {name: first for name, first in names.items() if name != first}


def _matching(names: Iterable[str], patterns: Sequence[str], option: str, whose: str) -> set[str]:
    found, names = set[str](), list(names)
    for pattern in patterns:
        matched = fnmatch.filter(names, pattern)
        if not matched:
            raise DataError(
                f"{option} {pattern} names no tensor of {whose}", f"it has {listed(sorted(names), SHOWN)}"
            )
        found.update(matched)
    return found


def _ignored(
    path: Path, found: _Found, model: FlatModel, layout: Layout, allowed: Allowance, kept: set[str]
) -> set[str]:
    """Return the tensors of a file that are not taken; refuse those that nobody has agreed to leave out."""
    held = {entry.name for entry in layout.entries} | _aliases(model).keys()
    unknown = [name for name in found.tensors if name not in held]
    counters = {name for name in unknown if name in model.module.state_dict()}
    extra = [name for name in unknown if name not in counters]
    # A head of the same names is left in the file too, as the model keeps its own.
    replaced = {name for name in kept if name in found.tensors}
    left = [*extra, *sorted(replaced)]
    agreed = _matching(left, allowed.extra, "--allow-extra", f"{path} that the model does not take")
    refused = [name for name in extra if name not in agreed]
    if refused:
        own = listed([entry.name for entry in layout.entries], SHOWN)
        raise DataError(
            f"{path} has tensors that the plan's model does not: {listed(sorted(refused), SHOWN)}",
            f"the model has {own}; rename them where the file was made, or leave them out with --allow-extra",
        )
    return agreed | counters | replaced


def _fault(entry: LayoutEntry, tensor: Tensor | None) -> str:
    if tensor is None:
        return f"{entry.name} is missing"
    if tuple(tensor.shape) != entry.shape:
        return f"{entry.name} has shape {tuple(tensor.shape)}, the model's has {entry.shape}"
    if tensor.layout is not torch.strided:
        kind = str(tensor.layout).removeprefix("torch.")
        return f"{entry.name} is stored as {kind}, not number by number (`.to_dense()` makes it so)"
    if tensor.is_meta:
        return f"{entry.name} has a shape and no values (device meta)"
    if tensor.dtype not in _WIDTHS:
        kind = str(tensor.dtype).removeprefix("torch.")
        return f"{entry.name} is {kind}, no floating-point number of 16 to 64 bits"
    return ""


def _cast(path: Path, entry: LayoutEntry, tensor: Tensor, layout: Layout, cast: dict[str, int]) -> Array:
    """Return the values of a tensor in the layout's width, array (n,); note in `cast` what changed."""
    name, wide = _WIDTHS[tensor.dtype], layout.dtype
    # Every 16-bit number is a float32, and every float32 a float64.
    values: Array = tensor.detach().reshape(-1).to(torch.float64).numpy()
    unsound = int((~np.isfinite(values)).sum())
    if unsound:
        raise DataError(
            f"{path}: {entry.name} holds {unsound} values that are NaN or infinite",
            "give weights of finite numbers: the training that made them has diverged",
        )
    with np.errstate(over="ignore"):
        narrow = values.astype(wide)
    if not np.isfinite(narrow).all():
        raise DataError(
            f"{path}: {entry.name} holds {np.abs(values).max():g}, which {wide} cannot hold",
            "set training.precision: fp64, or give smaller weights",
        )
    if name != str(wide):
        how = "rounded to" if (narrow != values).any() else "held exactly as"
        cast[f"{name}, {how} {wide}"] = cast.get(f"{name}, {how} {wide}", 0) + 1
    return narrow


def _refuse(path: Path, faults: Sequence[str]) -> None:
    more = f", and {len(faults) - SHOWN} more" if len(faults) > SHOWN else ""
    raise DataError(
        f"{path} does not fit the plan's model: {'; '.join(faults[:SHOWN])}{more}",
        "give weights of this model; what may begin with the plan's own values is named with --allow-missing, "
        "such as --allow-missing head.weight,head.bias",
    )
