"""Three people of one site, with keys that every test may know."""

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedfair.consent.approvers import Approvers, load_approvers
from fedfair.consent.decisions import Choice, PersonDecision, StudySubject, decide
from fedfair.plan.public_keys import format_public_key

NAMES = ("amina", "jonas", "li")
KEYS = {name: Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32) for number, name in enumerate(NAMES)}
WHEN = "2026-01-31T12:00:00+00:00"
SUBJECT = StudySubject("heart", "clinic-a", "age-1", "sha256:" + "11" * 32)


def public(name: str) -> str:
    return format_public_key(KEYS[name].public_key().public_bytes_raw())


def write_approvers(folder: Path, needed: int = 2, names: tuple[str, ...] = NAMES) -> Path:
    lines = [f"  {name}: {{key: '{public(name)}', words: the one named {name}}}" for name in names]
    path = folder / "approvers.yaml"
    path.write_text("\n".join([f"needed: {needed}", "people:", *lines, ""]), encoding="utf-8")
    return path


def approvers(folder: Path, needed: int = 2, names: tuple[str, ...] = NAMES) -> Approvers:
    return load_approvers(write_approvers(folder, needed, names))


def decided(
    name: str, choice: Choice = Choice.APPROVE, subject: StudySubject = SUBJECT, words: str = ""
) -> PersonDecision:
    return decide(subject, name, choice, KEYS[name].sign, at=WHEN, words=words, parts=("study", "policy"))
