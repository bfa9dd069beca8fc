"""A site's folder with studies in its inbox, as the service would have put them there; no service runs."""

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import yaml
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from collaborator.study_review.proposal import read_proposal
from fedfair.consent.decisions import StudySubject
from fedfair.consent.inbox import SitePhase, StudyFolder, StudyStatus, write_status
from fedfair.consortium.acts import Act, ActKind, sign_act
from fedfair.identity.files import private_pem
from fedfair.ids import FederationName, ParticipantId
from fedfair.plan.approval import approve
from fedfair.plan.digest import parse_digest
from fedfair.plan.loading import load_plan
from fedfair.plan.public_keys import format_public_key
from fedfair.training.freezing import freeze_plan
from fedfair.workspace.archive import pack
from tests.consent import people
from tests.plans import NAMES, small_plan

SITE = "clinic-a"
PASSWORDS = {name: f"a long passphrase of {name}" for name in people.NAMES}
SITE_KEYS = {
    name: Ed25519PrivateKey.from_private_bytes(bytes([50 + number]) * 32) for number, name in enumerate(NAMES)
}
TABLE = {
    "label": "died",
    "label_values": ["no", "yes"],
    "numeric": ["age", "systolic"],
    "ranges": {"age": [0, 120]},
    "missing": "mean",
    "categorical": {"marital": ["married", "single", "widowed"]},
}
NOON = datetime(2031, 5, 4, 12, tzinfo=UTC)


def plan_of(rounds: int = 5, table: Mapping[str, object] = TABLE, **training: object) -> dict[str, object]:
    """Return a plan of three sites with tables of their own."""
    plan = small_plan(rounds=rounds, protection={"mode": "malicious"}, **training)
    plan["task"] = {"data": {"csv": dict(table)}, "standardize": "secure", "model": {"name": "linear"}}
    roster = {name: format_public_key(key.public_key().public_bytes_raw()) for name, key in SITE_KEYS.items()}
    federation = {**dict(plan["federation"]), "roster": roster}  # type: ignore[call-overload]
    return {**plan, "federation": {**federation, "aggregator": {"host": "hub.example.org", "port": 50051}}}


def make_site(folder: Path, needed: int = 2) -> Path:
    """Write everything of a site but its studies, and return its `collaborator.yaml`."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        f"{30 + number % 50},{110 + number % 37},{('married', 'single', 'widowed')[number % 3]},"
        f"{'yes' if number % 4 == 0 else 'no'}"
        for number in range(120)
    ]
    (folder / "records.csv").write_text("\n".join(["age,systolic,marital,died", *rows, ""]), encoding="utf-8")
    site = {"collaborator": SITE, "data": {"train": "records.csv"}}
    (folder / "collaborator.yaml").write_text(yaml.safe_dump(site), encoding="utf-8")
    people.write_approvers(folder, needed)
    (folder / "people").mkdir(exist_ok=True)
    for name, key in people.KEYS.items():
        path = folder / "people" / f"{name}.pem"
        path.write_bytes(private_pem(key, PASSWORDS[name].encode()))
        path.chmod(0o600)
    return folder / "collaborator.yaml"


def propose(
    site: Path, name: str, plan: Mapping[str, object], *, words: str = "", files: Mapping[str, str] | None = None
) -> StudyFolder:
    """Put a study into a site's inbox.

    Args:
        site: the site's folder.
        name: of the study.
        plan: its values.
        words: of who proposes it.
        files: more files of its workspace, by their path.
    """
    folder = StudyFolder(site / "studies" / name)
    folder.plan.parent.mkdir(parents=True)
    folder.plan.write_text(yaml.safe_dump(plan, sort_keys=False), encoding="utf-8")
    for path, text in (files or {}).items():
        place = folder.workspace / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    digest = freeze_plan(folder.plan).digest
    folder.archive.write_bytes(pack(folder.workspace))
    act = Act(
        ActKind.SUBMITTED, FederationName("heart"), "dr-okafor", "2031-05-04T09:30:00+00:00", study=name,
        words=words, plan_digest=digest,
        archive_digest=hashlib.sha256(folder.archive.read_bytes()).digest(),
        archive_bytes=folder.archive.stat().st_size, sites=NAMES, needed=3,
    )  # fmt: skip
    folder.proposal.write_bytes(sign_act(act, people.KEYS["li"]))
    write_status(folder, StudyStatus(SitePhase.PROPOSED, "", NOON.isoformat()))
    return folder


def subject_of(folder: StudyFolder) -> StudySubject:
    """Return what the people of the site decide about."""
    return StudySubject("heart", SITE, folder.name, read_proposal(folder).plan_digest)


def approve_site(folder: StudyFolder, days: int = 0) -> None:
    """Write the site's own approval, so many days after the first."""
    load_plan(folder.plan)
    digest = parse_digest(subject_of(folder).plan_digest)
    at = (NOON + timedelta(days=days)).isoformat()
    name = ParticipantId(SITE)
    folder.approval.write_bytes(approve(digest, FederationName("heart"), name, SITE_KEYS[SITE], approved_at=at))
