"""`save/transcript.json`: where a run stood at its checkpoints and stands now, and what sites have signed of it.

    {"format": "fedfair/transcript/1", "federation": ..., "plan_digest": ..., "run": ...,
     "present": {"leaves", "rounds", "state", "model", "threshold", "root"}, "checkpoints": [the same, ...],
     "approvals": {NAME: "<fedfair/approval/1>"}, "statements": {NAME: "<fedfair/site-statement/1>"},
     "differing": {NAME: "<fedfair/site-statement/1>"}}

The file is its keeper's word for nothing: whoever reads it verifies statements and approvals with the keys of the
roster, and proofs with the roots in the statements.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedfair.errors import AuditError, FedfairError
from fedfair.file_formats import REMEDY, other_version
from fedfair.ids import FederationName, ParticipantId, parse_federation_name, parse_participant_id
from fedfair.plan.digest import format_digest, parse_digest
from fedfair.transcript.statement import parse_statement

FORMAT = "fedfair/transcript/1"
FILE = "transcript.json"
MAX_FILE_BYTES = 1 << 26
"""Of a thousand sites some ten MiB are statements and approvals."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run stands after so many leaves.

    Attributes:
        leaves: of the transcript.
        rounds: training rounds done.
        state: 32 bytes, digest of the state of the run.
        model: 32 bytes, SHA-256 of the vector of the global model.
        threshold: of that model.
        root: 32 bytes, of the transcript.
    """

    leaves: int
    rounds: int
    state: bytes
    model: bytes
    threshold: float
    root: bytes

    @property
    def same_state(self) -> tuple[int, int, bytes, bytes, float, bytes]:
        """Return what a statement at this place must say: `SiteStatement.same_state`."""
        return self.leaves, self.rounds, self.state, self.model, self.threshold, self.root

    def to_json(self) -> dict[str, object]:
        """Return the place for `json.dumps`."""
        digests = {name: format_digest(getattr(self, name)) for name in ("state", "model", "root")}
        return {"leaves": self.leaves, "rounds": self.rounds, "threshold": self.threshold.hex(), **digests}

    @classmethod
    def from_json(cls, told: dict[str, object]) -> Place:
        """Return the place of `to_json`; raises KeyError, ValueError or PlanError for anything else."""
        state, model, root = (parse_digest(str(told[name])) for name in ("state", "model", "root"))
        threshold = float.fromhex(str(told["threshold"]))
        return cls(int(str(told["leaves"])), int(str(told["rounds"])), state, model, threshold, root)


@dataclass(slots=True)
class RunEvidence:
    """All that is kept of one run beside its leaves.

    Attributes:
        federation: of the plan.
        plan_digest: 32 bytes.
        run: the run, 32 hexadecimal digits.
        places: where the run stood at each checkpoint, by its number of leaves.
        approvals: each site's signed approval of the plan.
        statements: the newest statement of each site that agrees with the run.
        differing: the newest statement of each site that does not.
        present: where the run stands; None before its first sum.
    """

    federation: FederationName
    plan_digest: bytes
    run: str
    places: dict[int, Place] = field(default_factory=dict)
    approvals: dict[ParticipantId, str] = field(default_factory=dict)
    statements: dict[ParticipantId, str] = field(default_factory=dict)
    differing: dict[ParticipantId, str] = field(default_factory=dict)
    present: Place | None = None

    @property
    def same_run(self) -> tuple[FederationName, bytes, str]:
        """Return what all statements of this run share: `SiteStatement.same_run`."""
        return self.federation, self.plan_digest, self.run

    def newest(self, who: ParticipantId) -> int:
        """Return the leaves of the newest statement of a site; 0 for none."""
        known = (kept.get(who) for kept in (self.statements, self.differing))
        return max((parse_statement(raw.encode()).leaves for raw in known if raw is not None), default=0)

    def until(self, size: int) -> RunEvidence:
        """Return what there is of a run that was put back to so many leaves."""
        places = {leaves: place for leaves, place in self.places.items() if leaves <= size}
        statements, differing = (
            {who: raw for who, raw in kept.items() if parse_statement(raw.encode()).leaves <= size}
            for kept in (self.statements, self.differing)
        )
        return RunEvidence(*self.same_run, places, dict(self.approvals), statements, differing)


def write_evidence(evidence: RunEvidence, present: Place) -> str:
    """Return the text of the file.

    Args:
        evidence: of the run.
        present: where the run stands.
    """
    told = {
        "format": FORMAT,
        "federation": evidence.federation,
        "plan_digest": format_digest(evidence.plan_digest),
        "run": evidence.run,
        "present": present.to_json(),
        "checkpoints": [place.to_json() for _, place in sorted(evidence.places.items())],
        "approvals": evidence.approvals,
        "statements": evidence.statements,
        "differing": evidence.differing,
    }
    return json.dumps(told, indent=2, sort_keys=True) + "\n"


def read_evidence(path: Path) -> RunEvidence:
    """Return what a file says; nothing of it is verified but its form.

    Raises:
        AuditError: there is no such file, or it cannot be read.
    """
    try:
        raw = path.read_bytes()[: MAX_FILE_BYTES + 1]
    except OSError as error:
        raise AuditError(
            f"{path} cannot be read: {error.strerror}", "give the transcript.json of the run"
        ) from error
    if fault := other_version(raw, FORMAT, str(path)):
        raise AuditError(fault, REMEDY)
    if len(raw) > MAX_FILE_BYTES:
        raise AuditError(f"{path} has more than {MAX_FILE_BYTES} bytes", "give the transcript.json of the run")
    try:
        told = _of_format(json.loads(raw))
        places = [Place.from_json(place) for place in told["checkpoints"]]
        return RunEvidence(
            parse_federation_name(told["federation"]),
            parse_digest(told["plan_digest"]),
            str(told["run"]),
            {place.leaves: place for place in places},
            _by_name(told["approvals"]),
            _signed(told["statements"]),
            _signed(told["differing"]),
            Place.from_json(told["present"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, FedfairError) as error:
        raise AuditError(
            f"{path} is no transcript of a run: {error}", "take the file from its keeper again"
        ) from error


def _of_format(told: dict[str, Any]) -> dict[str, Any]:
    if told["format"] != FORMAT:
        raise ValueError(f"its format is {told['format']!r}")
    return told


def _by_name(told: dict[str, str]) -> dict[ParticipantId, str]:
    return {parse_participant_id(name): str(text) for name, text in told.items()}


def _signed(told: dict[str, str]) -> dict[ParticipantId, str]:
    found = _by_name(told)
    for text in found.values():
        parse_statement(text.encode())
    return found
