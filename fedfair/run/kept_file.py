"""The part of a model that a site keeps, as a file beside the model that it belongs to.

    save/last.kept.safetensors     beside save/last.safetensors, at the site that has trained it, and nowhere else

It names the plan, the site, and by the digest of its vector the model with which it was trained: beside another
one it would answer what no evaluation has seen. No torch.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation import model_file
from fedfair.aggregation.model_layout import Layout, LayoutEntry
from fedfair.errors import DataError
from fedfair.plan.derived import keeps_parameters
from fedfair.plan.schema import Plan
from fedfair.run.saved_model import DescribedModel, TrainedModel, read_saved

SUFFIX = ".kept.safetensors"
_SITE, _MODEL, _PLAN = "site", "model_sha256", "plan_digest"
_TENSOR = "kept"


@dataclass(frozen=True, slots=True)
class KeptFile:
    """The part of a model that one site keeps.

    Attributes:
        site: whose it is.
        values: array (k,), in the order of the tensors' names.
    """

    site: str
    values: NDArray[np.floating] = field(repr=False)


def kept_beside(model: Path) -> Path:
    """Return where a site's own part of a model is: `last.kept.safetensors` beside `last.safetensors`."""
    return model.with_suffix(SUFFIX)


def write_kept(model: Path, saved: TrainedModel, kept: KeptFile) -> None:
    """Write a site's own part beside its model.

    Args:
        model: the file of the model.
        saved: what is in it.
        kept: the own part that belongs to it.

    Raises:
        DataError: the file cannot be written.
    """
    values = kept.values
    layout = Layout((LayoutEntry(_TENSOR, values.shape),), values.dtype)
    words = {_SITE: kept.site, _MODEL: saved.model.vector_sha256.hex(), _PLAN: saved.plan_digest}
    model_file.save(kept_beside(model), layout, values, words)


def own_part(plan: Plan, model: Path, sites: Collection[str]) -> NDArray[np.float64] | None:
    """Return the part of a saved model that one site keeps, array (k,); None where the plan keeps none.

    Args:
        plan: the plan that trained the model.
        model: its file, beside which the part is.
        sites: whose records are asked about.

    Raises:
        DataError: as `read_kept`, or it is another site's, or several sites are asked about.
    """
    if not keeps_parameters(plan):
        return None
    place = kept_beside(model)
    found = read_kept(place, read_saved(model))
    if set(sites) != {found.site}:
        asked = ", ".join(sorted(sites))
        raise DataError(
            f"{place} is the part of the model that {found.site} keeps, asked about are {asked}",
            "give each site its own model",
        )
    return found.values.astype(np.float64)


def read_kept(place: Path, described: DescribedModel) -> KeptFile:
    """Return a site's own part of a model.

    Args:
        place: its file.
        described: the model that it is to complete.

    Raises:
        DataError: it is not there, cannot be read, or belongs to another model.
    """
    stays = described.origin.description.parameters
    named = ", ".join((stays.stated.keep if stays else None) or ())
    if not place.is_file():
        raise DataError(
            f"{place} is not there: every site keeps its own {named}, and the model's file is without",
            "run this at a site, whose own part lies beside its copy of the model; or name that file as kept",
        )
    _, values, words = model_file.load(place)
    saved = described.saved
    if (words.get(_MODEL), words.get(_PLAN)) != (saved.model.vector_sha256.hex(), saved.plan_digest):
        raise DataError(
            f"{place} was trained beside another model than this one", "give the one of the same run and name"
        )
    return KeptFile(words.get(_SITE, ""), values)
