"""The files that a passport's statements follow from, each read and checked once.

    plan.zip                  the workspace's archive: plan, roster, model before round 1, own code
    model.safetensors         the model
    result.json               of the run whose output model it is
    evaluation.json           the opened sums of its evaluation; confidential, because a bin may hold one person
    evaluation.bin            the opened sum as it was; confidential likewise
    proof.json                which model the run came to, signed by its sites
    certificate.json          what these prove about every sizeable group
    data.SITE.json            a site's signed description of its records
    withdrawal.SITE.json      a site's signed notice of records that have been withdrawn since
    words.yaml                what the provider declares
    software.json             the bill of materials

Decides which kinds there are, that the files are about one plan and one model, and nothing of what is said of it.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.evaluation_file import EvaluationRecord, parse_evaluation, parse_header
from fedfair.aggregation.requests import vector_sha256
from fedfair.certificate.document import Certificate, parse_certificate
from fedfair.errors import ApprovalError, PassportError
from fedfair.identity.roster import parse_roster
from fedfair.passport.declarations import Declarations, parse_declarations
from fedfair.passport.document import EVIDENCE_FOLDER, ListedFile
from fedfair.passport.site_description import SiteDescription, parse_description
from fedfair.plan.digest import format_digest, parse_digest
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.loading import load_plan
from fedfair.plan.schema import Plan
from fedfair.results.document import ResultDocument
from fedfair.results.reading import parse_result
from fedfair.run.initial_model import read_initial_model
from fedfair.run.saved_model import DescribedModel, read_saved
from fedfair.transcript.proof import RunProof, read_proof
from fedfair.transcript.proof_check import ProvenRun, check_proof
from fedfair.withdrawal.notice import WithdrawalNotice, verified_notice
from fedfair.workspace.archive import read_archive, unpack

MAX_FILE_BYTES = 64 << 20
"""Of any file but the plan's archive and the model."""


@dataclass(frozen=True, slots=True)
class EvidenceKind:
    """A kind of evidence.

    Attributes:
        name: its word in a passport.
        file: its name; with a `{}` for a site's name where there is one for each site.
        media_type: of its content.
        required: whether there is no passport without it.
        remedy: how it is made.
        confidential: whether it tells of single people, so that it stays with the issuer unless an auditor gets
            it: the passport has its digest.
    """

    name: str
    file: str
    media_type: str
    required: bool
    remedy: str
    confidential: bool = False


PLAN = EvidenceKind("plan", "plan.zip", "application/zip", True, "run `fedfair workspace export`")
MODEL = EvidenceKind("model", "model.safetensors", "application/octet-stream", True, "name the model with --model")
RESULT = EvidenceKind("result", "result.json", "application/json", True, "name the result with --result")
EVALUATION = EvidenceKind(
    "evaluation",
    "evaluation.json",
    "application/json",
    True,
    "name the evaluation's sums with --evaluation",
    confidential=True,
)
SUM = EvidenceKind(
    "sum",
    "evaluation.bin",
    "application/octet-stream",
    False,
    "name the opened sum of the evaluation with --sum",
    confidential=True,
)
PROOF = EvidenceKind("proof", "proof.json", "application/json", False, "run `fedfair audit prove`")
CERTIFICATE = EvidenceKind(
    "certificate", "certificate.json", "application/json", False, "run `fedfair certificate` first"
)
DATA = EvidenceKind("data", "data.{}.json", "application/json", False, "each site runs `fedfair data describe`")
WITHDRAWAL = EvidenceKind(
    "withdrawal",
    "withdrawal.{}.json",
    "application/json",
    False,
    "each site runs `fedfair data withdrawal-notice`",
)
WORDS = EvidenceKind(
    "words",
    "words.yaml",
    "application/yaml",
    False,
    "write it from `fedfair passport words`, and name it with --words",
)
SOFTWARE = EvidenceKind(
    "software", "software.json", "application/vnd.cyclonedx+json", True, "name one with --software"
)

KINDS: tuple[EvidenceKind, ...] = (
    PLAN, MODEL, RESULT, EVALUATION, SUM, PROOF, CERTIFICATE, DATA, WITHDRAWAL, WORDS, SOFTWARE,
)  # fmt: skip
"""Every kind, in the order in which a passport lists its files."""


@dataclass(frozen=True, slots=True)
class EvidencePlace:
    """A file of evidence where it is.

    Attributes:
        kind: what it is.
        path: where.
        site: whose it is; empty for the consortium's.
    """

    kind: EvidenceKind
    path: Path
    site: str = ""

    @property
    def file(self) -> str:
        """Its name in the evidence folder."""
        return self.kind.file.format(self.site)

    @property
    def file_id(self) -> str:
        """Its name in a passport."""
        return f"{EVIDENCE_FOLDER}/{self.file}"

    def content(self) -> bytes:
        """Return what it holds.

        Raises:
            PassportError: it is longer than any file of its kind.
        """
        with self.path.open("rb") as source:
            raw = source.read(MAX_FILE_BYTES + 1)
        if len(raw) > MAX_FILE_BYTES:
            raise PassportError(f"{self.path} has more than {MAX_FILE_BYTES} bytes, so it is no {self.kind.name}")
        return raw

    def listed(self) -> ListedFile:
        """Return it as a passport lists it."""
        digest = hashlib.sha256()
        with self.path.open("rb") as source:
            while piece := source.read(1 << 20):
                digest.update(piece)
        return ListedFile(
            id=self.file_id,
            kind=self.kind.name,
            sha256=digest.hexdigest(),
            bytes=self.path.stat().st_size,
            media_type=self.kind.media_type,
            confidential=self.kind.confidential,
        )


@dataclass(frozen=True, slots=True)
class AgreedPlan:
    """The plan that the sites approved.

    Attributes:
        plan: the plan.
        digest: "sha256:" and 64 hex digits, computed from the archive.
        schema: of its features.
    """

    plan: Plan
    digest: str
    schema: FeatureSchema


class ModelEvidence:
    """The files of a passport, read when they are first asked for.

    Every property raises PassportError, or the error of its own reader, where a file is damaged or about another
    plan or model than the rest.

    Args:
        places: of the files, no two of one name.
        kept: confidential files that stay with the issuer, as a passport lists them.
    """

    def __init__(self, places: Iterable[EvidencePlace], kept: Iterable[ListedFile] = ()) -> None:
        self.places = tuple(sorted(places, key=lambda place: place.file))
        present = {place.file_id for place in self.places}
        self.kept = tuple(one for one in kept if one.id not in present)
        for kind in KINDS:
            if kind.required and not self.of(kind) and kind.name not in {one.kind for one in self.kept}:
                raise PassportError(f"there is no {kind.file} among the evidence", kind.remedy)

    def of(self, kind: EvidenceKind) -> tuple[EvidencePlace, ...]:
        """Return the files of a kind."""
        return tuple(place for place in self.places if place.kind == kind)

    def ids(self, *kinds: EvidenceKind) -> tuple[str, ...]:
        """Return the names in a passport of all files of some kinds, also of those that are kept elsewhere."""
        return tuple(one.id for kind in kinds for one in self.listed() if one.kind == kind.name)

    def listed(self) -> tuple[ListedFile, ...]:
        """Return every file with its digest, by kind and name."""
        return tuple(one for kind in KINDS for one in (*self._digests, *self.kept) if one.kind == kind.name)

    @cached_property
    def _digests(self) -> tuple[ListedFile, ...]:
        return tuple(place.listed() for place in self.places)

    @cached_property
    def agreed(self) -> AgreedPlan:
        """The plan, with its digest computed anew."""
        place = self.of(PLAN)[0]
        with tempfile.TemporaryDirectory() as folder:
            unpack(read_archive(place.path), Path(folder))
            plan_file = Path(folder) / "plan" / "plan.yaml"
            plan = load_plan(plan_file)
            found = read_initial_model(plan_file, plan)
            return AgreedPlan(plan, format_digest(found.plan_digest), found.schema)

    @cached_property
    def model(self) -> DescribedModel:
        """The model, which the plan has trained."""
        found = read_saved(self.of(MODEL)[0].path)
        self._same("plan", found.saved.plan_digest, self.agreed.digest, MODEL)
        return found

    @cached_property
    def model_digest(self) -> str:
        """Digest of the model's vector, "sha256:" and 64 hex digits, computed anew."""
        return format_digest(vector_sha256(self.model.saved.model.vector))

    @cached_property
    def result(self) -> ResultDocument:
        """The result, which is about this model."""
        place = self.of(RESULT)[0]
        found = parse_result(place.content(), str(place.path))
        self._same("plan", found.plan_digest, self.agreed.digest, RESULT)
        if found.model is None:
            raise PassportError(
                f"{place.path} does not say which model it is about", "give the result of this run"
            )
        self._same("model", found.model.digest, self.model_digest, RESULT)
        return found

    @cached_property
    def evaluation(self) -> EvaluationRecord | None:
        """The sums of the model's evaluation; None where they are kept elsewhere."""
        for place in self.of(EVALUATION):
            found = parse_evaluation(place.content(), str(place.path))
            self._same("plan", found.plan_digest, self.agreed.digest, EVALUATION)
            self._same("model", found.model_digest, self.model_digest, EVALUATION)
            return found
        return None

    @cached_property
    def opened(self) -> NDArray[np.float64] | None:
        """The opened sum of the evaluation, (header length,); None where it is kept elsewhere, or nowhere."""
        for place in self.of(SUM):
            return parse_header(place.content(), str(place.path))
        return None

    @cached_property
    def proof(self) -> RunProof | None:
        """The proof of the run, not yet checked; None where there is none. `proven` is what it proves."""
        for place in self.of(PROOF):
            return read_proof(place.content(), str(place.path))
        return None

    @cached_property
    def proven(self) -> ProvenRun | None:
        """What the proof proves by the keys of the plan's roster, about this plan and model; None without one."""
        if self.proof is None:
            return None
        plan, model = self.agreed.plan, parse_digest(self.model_digest)
        found = check_proof(self.proof, parse_roster(plan.federation.roster), plan=plan, model=model, needed=1)
        self._same("plan", format_digest(found.plan_digest), self.agreed.digest, PROOF)
        return found

    @cached_property
    def certificate(self) -> Certificate | None:
        """The certificate, not yet checked; None where there is none."""
        for place in self.of(CERTIFICATE):
            return parse_certificate(place.content(), str(place.path))
        return None

    @cached_property
    def descriptions(self) -> dict[str, SiteDescription]:
        """The sites' descriptions of their records by site, signed by the keys of the plan's roster."""
        told = {}
        for place in self.of(DATA):
            found = parse_description(place.content(), str(place.path))
            found.verify(self.agreed.plan, self.agreed.digest, str(place.path))
            if found.site != place.site:
                raise PassportError(f"{place.path} is of {found.site}", f"call it {DATA.file.format(found.site)}")
            told[found.site] = found
        return told

    @cached_property
    def withdrawals(self) -> tuple[WithdrawalNotice, ...]:
        """The sites' notices of withdrawals, signed by the keys of the plan's roster."""
        federation = self.agreed.plan.federation
        roster = {str(name): key for name, key in parse_roster(federation.roster).items()}
        told = []
        for place in self.of(WITHDRAWAL):
            try:
                found = verified_notice(place.content(), federation.name, roster, str(place.path))
            except ApprovalError as fault:
                raise PassportError(fault.message, fault.remedy) from fault
            if found.participant != place.site:
                right = WITHDRAWAL.file.format(found.participant)
                raise PassportError(f"{place.path} is of {found.participant}", f"call it {right}")
            told.append(found)
        return tuple(told)

    @cached_property
    def declarations(self) -> Declarations | None:
        """The words of the provider; None where there are none."""
        for place in self.of(WORDS):
            return parse_declarations(place.path)
        return None

    def _same(self, what: str, found: str, wanted: str, kind: EvidenceKind) -> None:
        if found != wanted:
            place = self.of(kind)[0].path
            raise PassportError(
                f"{place} is about the {what} {found or '(not said)'}, the rest about {wanted}",
                "give the files of one run",
            )


def evidence_in(folder: Path) -> tuple[EvidencePlace, ...]:
    """Return the files of a passport's evidence folder.

    Raises:
        PassportError: there is no such folder, or something in it is no evidence.
    """
    if not folder.is_dir():
        raise PassportError(f"{folder} does not exist", "keep the evidence beside its passport")
    return tuple(_place(path) for path in sorted(folder.iterdir()))


def _place(path: Path) -> EvidencePlace:
    if not path.is_file():
        raise PassportError(f"{path} is no file", "move it away")
    for kind in KINDS:
        begin, each, end = kind.file.partition("{}")
        if not each and path.name == kind.file:
            return EvidencePlace(kind, path)
        if each and path.name.startswith(begin) and path.name.endswith(end):
            return EvidencePlace(kind, path, path.name[len(begin) : len(path.name) - len(end)])
    raise PassportError(f"{path} is no evidence of a passport", "move it away")
