"""The saved models that this site answers about on demand: those it has itself, and those it has approved.

    approvals/<name>.model-<digest>.json           what was approved, and when, for people
    approvals/<name>.model-<digest>.safetensors    the model, so that nobody need send it

Both lie beside the approval of the plan. <digest> is the identity of the model (`model_identity`), 64 hex digits.
The record is not signed: nobody but this site reads it, and the digest of the copy is computed again whenever it
is used. The site's own models are the last, best and trained ones of its runs (`run_folder.py`). All of them are
of the very plan that is asked about. Decides which model a digest means; whether a sum is answered is decided
elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from collaborator.run_folder import BEST, LAST, SAVE, TRAINED
from fedfair.errors import ApprovalError, DataError, StateError
from fedfair.ids import ParticipantId
from fedfair.plan.derived import is_unevaluated
from fedfair.plan.digest import format_digest
from fedfair.results.outcome import RunSubject
from fedfair.run import saved_model
from fedfair.store.atomic_file import write_whole

if TYPE_CHECKING:
    from collaborator.preparation import PreparedSite
    from fedfair.training.binding import PlanBinding

_AGAIN = "remove it and approve the model again with `fedfair plan approve --model`"


class ModelApproval(BaseModel):
    """The approval of a site: the evaluation of one saved model.

    Attributes:
        format: the name of this format.
        federation: the plan's.
        participant: who approves.
        plan_digest: of the plan that has trained the model, "sha256:" and 64 hex digits.
        model_digest: of the model, the same form.
        round: training rounds that the model has behind it.
        threshold: of the model.
        approved_at: when, in ISO 8601; for people, not compared.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    format: Literal["fedfair/model-approval/1"] = "fedfair/model-approval/1"
    federation: str
    participant: str
    plan_digest: str
    model_digest: str
    round: int
    threshold: float
    approved_at: str


@dataclass(frozen=True, slots=True)
class ModelPlaces:
    """Where one site has models of one plan.

    Attributes:
        participant: the site.
        approvals: the folder of its approvals.
        runs: the folder of its own copies of runs, one folder for each run.
        subject: the plan and its model.
    """

    participant: ParticipantId
    approvals: Path
    runs: Path
    subject: RunSubject

    @classmethod
    def of_site(cls, site: PreparedSite, binding: PlanBinding) -> ModelPlaces:
        """Return the places of a site that is ready to take part."""
        digest = format_digest(binding.digest)
        subject = RunSubject(site.plan, digest, binding.layout, binding.schema, binding.initial_weights)
        return cls(site.participant, site.approval_file.parent, site.runs, subject)

    def approval(self, digest: bytes) -> Path:
        """Return the record of an approval; the model's copy has another ending."""
        return self.approvals / f"{self.participant}.model-{digest.hex()}.json"

    def load(self, path: Path) -> saved_model.TrainedModel:
        """Return a model of this plan.

        Raises:
            DataError: it cannot be read, or is of another plan.
        """
        subject = self.subject
        tuned = saved_model.read_saved(path).origin.fine_tuned_at
        if tuned:
            raise DataError(
                f"{path} was fine-tuned at {tuned}: it is no model of the federation, and tells of {tuned}'s "
                "records",
                "give a model that this plan has trained",
            )
        saved = saved_model.load_saved(path, subject.plan, subject.layout, subject.schema)
        if saved.plan_digest != subject.plan_digest:
            raise DataError(
                f"{path} was trained by the plan {saved.plan_digest or '(not said)'}, this plan is "
                f"{subject.plan_digest}",
                "give a model that this plan has trained, or the plan that has trained this model",
            )
        return saved

    def identity(self, saved: saved_model.TrainedModel) -> bytes:
        """Return the 32 bytes by which a model is known."""
        return saved_model.model_identity(self.subject.layout, saved.model, saved.scaling)


def read_model(places: ModelPlaces, path: Path) -> saved_model.TrainedModel:
    """Return the model that is to be approved.

    Raises:
        ApprovalError: there is no such file, or its plan lets no saved model be evaluated.
        DataError: the file is no model of this plan.
    """
    if is_unevaluated(places.subject.plan):
        raise ApprovalError(
            "no evaluation sum is allowed by this plan (privacy.collaborator_level, or statistics)",
            "evaluate the model with `fedfair evaluate`, on data that the promise is not about",
        )
    if not path.is_file():
        raise ApprovalError(
            f"there is no model {path}", "give a file such as runs/<name>/<run>/save/last.safetensors"
        )
    return places.load(path)


def approve_model(places: ModelPlaces, saved: saved_model.TrainedModel, now: datetime) -> Path:
    """Write that this site answers about a model, and keep a copy of it; return the record's path.

    Args:
        places: of this site; the folder of approvals is made if there is none.
        saved: the model, from `read_model`.
        now: when, with a time zone.

    Raises:
        ApprovalError: a file cannot be written.
    """
    subject, digest = places.subject, places.identity(saved)
    record = ModelApproval(
        federation=subject.plan.federation.name,
        participant=places.participant,
        plan_digest=subject.plan_digest,
        model_digest=format_digest(digest),
        round=saved.round,
        threshold=saved.model.threshold,
        approved_at=now.isoformat(timespec="seconds"),
    )
    path = places.approval(digest)
    origin = saved_model.ModelOrigin.of_plan(
        subject.plan, subject.plan_digest, subject.schema, subject.initial_weights
    )
    try:
        places.approvals.mkdir(parents=True, exist_ok=True)
        # The model first: an approval without its model would be of no use.
        saved_model.save_model(_copy_of(path), subject.layout, saved, origin)
        write_whole(path, json.dumps(record.model_dump(mode="json"), indent=2) + "\n")
    except (OSError, DataError) as error:
        raise ApprovalError(
            f"nothing was approved: {error}", "make room on the disk, or let this user write there"
        ) from error
    return path


def is_approved(places: ModelPlaces, described: saved_model.DescribedModel) -> bool:
    """Return whether this site has approved the evaluation of exactly this model, of exactly this plan.

    Raises:
        StateError: there is an approval that cannot be read, or that is for something else.
    """
    saved = described.saved
    if saved.plan_digest != places.subject.plan_digest:
        return False
    digest = saved_model.model_identity(described.layout, saved.model, saved.scaling)
    path = places.approval(digest)
    if not path.exists():
        return False
    _approved(places, path, digest)
    return True


def find_model(places: ModelPlaces, digest: bytes) -> saved_model.TrainedModel | None:
    """Return the model that a digest means, from this site's own files; None where it knows none.

    Args:
        places: of this site.
        digest: 32 bytes, the identity of a model.

    Raises:
        StateError: the approval, its copy, or a model of a run cannot be read, and no other file has the model.
    """
    approved = places.approval(digest)
    own, unreadable = _own_model(places, digest)
    if own is not None:
        return own
    if approved.exists():
        return _approved(places, approved, digest)
    if unreadable:
        first = unreadable[0]
        raise StateError(
            f"no file here that can be read has the model {format_digest(digest)}; {first.message}",
            "copy the file back from a backup, or remove it",
        ) from first
    return None


def is_own(places: ModelPlaces, digest: bytes) -> bool:
    """Return whether a model of this site's own runs has this identity, 32 bytes."""
    return _own_model(places, digest)[0] is not None


def _own_model(places: ModelPlaces, digest: bytes) -> tuple[saved_model.TrainedModel | None, list[DataError]]:
    """Return the model of this site's own runs that a digest means, and why files could not be read."""
    unreadable: list[DataError] = []
    for path in _own_models(places):
        try:
            found = saved_model.read_saved(path)
        except DataError as fault:
            unreadable.append(fault)
            continue
        # A run of another plan leaves its models here too.
        mine = found.saved.plan_digest == places.subject.plan_digest
        if mine and saved_model.model_identity(found.layout, found.saved.model, found.saved.scaling) == digest:
            return places.load(path), unreadable
    return None, unreadable


def _own_models(places: ModelPlaces) -> Iterator[Path]:
    """Yield the models of this site's runs, in the order of the runs' names."""
    for name in (LAST, BEST, TRAINED):
        yield from sorted(places.runs.glob(f"*/{SAVE}/{name}"))


def _approved(places: ModelPlaces, path: Path, digest: bytes) -> saved_model.TrainedModel:
    try:
        record = ModelApproval.model_validate_json(path.read_bytes())
        saved = places.load(_copy_of(path))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise StateError(f"{path} is no approval of a model: {where}: {first['msg']}", _AGAIN) from error
    except (OSError, DataError) as fault:
        raise StateError(f"{path}: the approved model cannot be read: {fault}", _AGAIN) from fault
    subject = places.subject
    for said, found, what in (
        (record.federation, subject.plan.federation.name, "federation"),
        (record.participant, places.participant, "participant"),
        (record.plan_digest, subject.plan_digest, "plan"),
        (record.model_digest, format_digest(digest), "model"),
        (format_digest(places.identity(saved)), format_digest(digest), "model in the copy"),
    ):
        if said != found:
            raise StateError(f"{path} is for the {what} {said!r}, not for {found!r}", _AGAIN)
    return saved


def _copy_of(approval: Path) -> Path:
    return approval.with_suffix(".safetensors")
