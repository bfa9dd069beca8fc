"""Which tensors of a model travel under a plan and which stay; the digest of those that do not travel; their file.

The digest is over the names, widths, shapes and bytes of the tensors that do not travel, as they are before round
1, in the order of their names, so it does not depend on how files divide them.

    SHA-256 over, each with its length in front (8 bytes, big-endian): "fedfair/frozen/v1",
    then of each tensor: name, width, shape, little-endian bytes
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from fedfair.errors import DataError, PlanError
from fedfair.plan.parameters import ParametersSection, matching
from fedfair.tables.text_table import listed
from fedfair.training.lora import SHOWN, is_factor

LABEL = b"fedfair/frozen/v1"


def distinct_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return every floating-point parameter and persistent buffer once, under the first of its names."""
    first_names: dict[int, str] = {}
    tensors = dict(_named_tensors(model))
    for name in sorted(tensors):
        first_names.setdefault(id(tensors[name]), name)
    return {name: tensors[name] for name in first_names.values()}


def _named_tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    for name, value in model.state_dict(keep_vars=True).items():
        if isinstance(value, Tensor) and value.is_floating_point():
            yield name, value


@dataclass(frozen=True, slots=True)
class Parts:
    """The names of a model's tensors by what becomes of them; the others are frozen.

    Attributes:
        travel: of those that are summed; None where all of them are.
        stay: of those that each site trains and keeps to itself.
    """

    travel: frozenset[str] | None = None
    stay: frozenset[str] = frozenset()


ALL_TRAVEL = Parts()


def parts_of(model: nn.Module, stated: ParametersSection | None) -> Parts:
    """Return what becomes of the tensors of a model.

    Args:
        model: with its adapters.
        stated: `training.parameters` of the plan.

    Raises:
        PlanError: a pattern names no tensor, a tensor would both travel and stay, or nothing that travels, or
            nothing that stays, is trained.
    """
    if stated is None:
        return ALL_TRAVEL
    tensors = distinct_tensors(model)
    names = first_names(model, tensors)
    found = _named(tensors, names, "train", stated.train or ())
    stay = _named(tensors, names, "keep", stated.keep or ())
    if stated.lora is not None:
        found |= set(filter(is_factor, tensors))
    if both := found & stay:
        raise PlanError(
            f"training.parameters.keep and train name {listed(sorted(both), SHOWN)}, which cannot stay and travel",
            "name it in one of them",
        )
    if stated.all_travel:
        found = tensors.keys() - stay
        if not any(tensors[name].requires_grad for name in found):
            raise PlanError(
                "training.parameters.keep names everything that is trained, and nothing would be summed",
                "let a part travel, or train at each site alone",
            )
    for place, named in (("train", found), ("keep", stay)):
        if named and not any(tensors[name].requires_grad for name in named):
            raise PlanError(
                f"training.parameters.{place} names {listed(sorted(named), SHOWN)} alone, of which nothing can be "
                "trained",
                "name a parameter, and not only running statistics",
            )
    return Parts(frozenset(found), frozenset(stay))


def _named(
    tensors: Mapping[str, Tensor], names: Mapping[str, str], place: str, patterns: Collection[str]
) -> set[str]:
    """Return the first names of the tensors that patterns name.

    Raises:
        PlanError: a pattern names none.
    """
    for pattern in patterns:
        if not matching(names, (pattern,)):
            raise PlanError(
                f"training.parameters.{place}: {pattern} names no parameter of the model",
                f"it has {listed(sorted(tensors), SHOWN)}",
            )
    return {names[name] for name in matching(names, patterns)}


def first_names(model: nn.Module, tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Return, for every name of these tensors, the name under which it is known."""
    known = {id(tensor): name for name, tensor in tensors.items()}
    return {name: known[id(tensor)] for name, tensor in _named_tensors(model) if id(tensor) in known}


def frozen_digest(tensors: Mapping[str, Tensor]) -> bytes:
    """Return the 32 bytes that stand for frozen tensors; empty where there are none."""
    if not tensors:
        return b""
    sha = hashlib.sha256()
    _put(sha, LABEL)
    for name, tensor in sorted(tensors.items()):
        plain = tensor.detach().to("cpu").contiguous()
        _put(sha, name.encode())
        _put(sha, str(plain.dtype).removeprefix("torch.").encode())
        _put(sha, b"".join(length.to_bytes(8, "big") for length in plain.shape))
        _put(sha, plain.reshape(-1).view(torch.uint8).numpy().data)
    return sha.digest()


def _put(sha: hashlib._Hash, field: bytes | memoryview) -> None:
    sha.update(memoryview(field).nbytes.to_bytes(8, "big"))
    sha.update(field)


# ------------------------------------------------------------------------------------------------- their file


def shards_of(place: Path) -> list[Path]:
    """Return the files of tensors at a place: a file, a folder of files, or a folder of Hugging Face's cache.

    Raises:
        DataError: there is none, or the cache holds several revisions.
    """
    if place.is_file():
        return [place]
    found = sorted(place.glob("*.safetensors")) or sorted(place.glob("snapshots/*/*.safetensors"))
    if not found:
        raise DataError(
            f"{place} holds no .safetensors file, and the plan's frozen parameters are to be there",
            "give a file, a folder of such files, or a model's folder in a Hugging Face cache",
        )
    revisions = {file.parent.name for file in found}
    if len(revisions) > 1:
        raise DataError(
            f"{place} holds {len(revisions)} revisions of a model: {listed(sorted(revisions), SHOWN)}",
            f"name one of them, such as {found[0].parent}",
        )
    return found


def freeze_tensors(model: nn.Module, travels: Collection[str], place: Path) -> None:
    """Give the frozen tensors of a model the values of a file; where the widths are alike, they are mapped.

    A name in the file may lack what comes before it in the model: `embeddings.weight` serves
    `encoder.embeddings.weight` where all names lack the same. A tied tensor is found under any of its names.

    Args:
        model: it is changed.
        travels: names of the tensors that are not frozen.
        place: as for `shards_of`.

    Raises:
        DataError: a file cannot be read, or lacks a tensor, or has one of another shape or of no floating-point
            numbers.
    """
    tensors = {name: one for name, one in distinct_tensors(model).items() if name not in travels}
    names: dict[str, list[str]] = {}
    for name, first in first_names(model, tensors).items():
        names.setdefault(first, []).append(name)
    held: dict[str, Path] = {}
    try:
        for file in shards_of(place):
            with safe_open(file, framework="pt") as opened:
                held |= dict.fromkeys(opened.keys(), file)
        by_file: dict[Path, dict[str, str]] = {}
        for name, stored in _stored_names(names, held).items():
            by_file.setdefault(held[stored], {})[name] = stored
        for file, found in by_file.items():
            with safe_open(file, framework="pt") as opened:
                for name, stored in found.items():
                    _take(place, name, tensors[name], opened.get_tensor(stored))
    except (OSError, SafetensorError) as error:
        raise DataError(f"{place} cannot be read: {error}", "copy it again from where it was made") from error


def _stored_names(names: Mapping[str, Collection[str]], held: Collection[str]) -> dict[str, str]:
    """Return the name of each tensor in files, by its first name.

    Args:
        names: all names of each tensor, by the first.
        held: what the files have.

    Raises:
        DataError: they lack a tensor, whatever all names may lack at their beginning.
    """
    first = names[min(names)]
    leads = ["", *(one[: place + 1] for one in first for place, letter in enumerate(one) if letter == ".")]
    for lead in leads:
        found = {}
        for name, own in names.items():
            stored = {one.removeprefix(lead) for one in own if one.startswith(lead)}
            if there := stored.intersection(held):
                found[name] = min(there)
        if len(found) == len(names):
            return found
    missing = sorted(name for name, own in names.items() if not set(own).intersection(held))
    raise DataError(
        f"the frozen parameters lack {listed(missing, SHOWN)}",
        "give the file that the plan was frozen with, or the weights under the names of the model",
    )


def _take(place: Path, name: str, tensor: Tensor, values: Tensor) -> None:
    if values.shape != tensor.shape or not values.is_floating_point():
        kind = str(values.dtype).removeprefix("torch.")
        raise DataError(
            f"{place} has {name} as {tuple(values.shape)} {kind}, the model's is {tuple(tensor.shape)}",
            "give the weights of this model",
        )
    tensor.data = values.to(tensor.dtype)
