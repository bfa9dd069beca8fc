"""What one person has decided about one study, signed with that person's key; and what all decisions come to.

    {"format": "fedfair/decision/1", "federation": "heart", "site": "clinic-a", "study": "age-1",
     "plan_digest": "sha256:...", "decision": "approve", "words": "as discussed", "parts": ["study", "policy"],
     "person": "amina", "at": "2026-01-31T12:00:00+00:00", "signature": "<base64>"}

The signature is Ed25519 over a label and these fields, each with its length in front. The file has one spelling,
as an approval has. A decision stays at the site: what leaves it is the site's own approval, which names no person.

One refusal refuses, one withdrawal withdraws, and enough approvals approve. What is signed over another digest, by
somebody who is not in `approvers.yaml`, or with another key, counts nothing and is named with its fault.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from fedfair.consent.approvers import Approvers
from fedfair.errors import ApprovalError
from fedfair.file_formats import REMEDY, other_version
from fedfair.signed_message import labelled_message

FORMAT = "fedfair/decision/1"
LABEL = "fedfair/decision/v1"
MAX_BYTES = 16_384
MAX_WORDS = 1000
"""Characters of the reason that a person gives."""
MAX_PARTS = 20

_TEXTS = ("format", "federation", "site", "study", "plan_digest", "decision", "words", "person", "at")
_FIELDS = frozenset({*_TEXTS, "parts", "signature"})
_REMEDY = "the person decides again: `fedfair inbox approve`, `refuse` or `withdraw`"

Signer = Callable[[bytes], bytes]
"""From the bytes of a decision to its signature, 64 bytes: a key, or an agent that holds one."""


class Choice(StrEnum):
    """What a person may decide about a study."""

    APPROVE = "approve"
    REFUSE = "refuse"
    WITHDRAW = "withdraw"
    """end what was approved, at once"""


@dataclass(frozen=True, slots=True)
class StudySubject:
    """What a decision is about.

    Attributes:
        federation: its name.
        site: the collaborator whose people decide.
        study: its name.
        plan_digest: of the plan, "sha256:" and 64 hex digits.
    """

    federation: str
    site: str
    study: str
    plan_digest: str


@dataclass(frozen=True, slots=True)
class PersonDecision:
    """One person's signed decision, as its file states it.

    Attributes:
        subject: what it is about.
        choice: what was decided.
        words: why, one line; may be empty.
        parts: what the person had opened before, in the order of the page.
        person: who.
        at: when, in ISO 8601; for people, not compared.
        signature: 64 bytes.
    """

    subject: StudySubject
    choice: Choice
    words: str
    parts: tuple[str, ...]
    person: str
    at: str
    signature: bytes = b""

    def message(self) -> bytes:
        """Return the bytes that are signed."""
        texts = _texts(self)
        return labelled_message(LABEL, [texts[name].encode() for name in _TEXTS] + _counted(self.parts))

    def to_bytes(self) -> bytes:
        """Return the file of the decision, at most 16384 bytes."""
        signature = base64.b64encode(self.signature).decode("ascii")
        return _canonical({**_texts(self), "parts": list(self.parts), "signature": signature})


@dataclass(frozen=True, slots=True)
class DecisionFault:
    """A file of a decision that counts nothing.

    Attributes:
        name: of the file, without its ending.
        words: why.
    """

    name: str
    words: str


class ConsentState(StrEnum):
    """What the decisions of a site's people come to."""

    WAITING = "waiting"
    APPROVED = "approved"
    REFUSED = "refused"
    WITHDRAWN = "withdrawn"


@dataclass(frozen=True, slots=True)
class Consent:
    """What the decisions come to.

    Attributes:
        state: the outcome.
        missing: how many must still approve; 0 in every other state than waiting.
        by_person: each person's choice, in the order of `approvers.yaml`.
    """

    state: ConsentState
    missing: int
    by_person: Mapping[str, Choice]

    def words(self) -> str:
        """Return it for people, such as "approved by amina; 1 more of needed approvals is awaited"."""
        said = "; ".join(
            f"{word} by {', '.join(names)}"
            for choice, word in _WORDS.items()
            if (names := [name for name, chosen in self.by_person.items() if chosen is choice])
        )
        if self.state is not ConsentState.WAITING:
            return said
        awaited = f"{self.missing} more {'approval is' if self.missing == 1 else 'approvals are'} awaited"
        return f"{said}; {awaited}" if said else awaited


_WORDS = {Choice.APPROVE: "approved", Choice.REFUSE: "refused", Choice.WITHDRAW: "withdrawn"}


def decide(
    subject: StudySubject,
    person: str,
    choice: Choice,
    signer: Signer,
    *,
    at: str,
    words: str = "",
    parts: Sequence[str] = (),
) -> PersonDecision:
    """Return a signed decision.

    Args:
        subject: what it is about.
        person: who decides.
        choice: what.
        signer: signs with the person's key.
        at: when, in ISO 8601, for people.
        words: why; one line of at most 1000 characters.
        parts: what the person has opened.

    Raises:
        ApprovalError: the words are no line, or too long; or what the signer raises.
    """
    if len(words) > MAX_WORDS or not words.isprintable():
        raise ApprovalError(
            f"the words of a decision have {len(words)} characters", f"give one line of at most {MAX_WORDS}"
        )
    unsigned = PersonDecision(subject, choice, words, tuple(parts), person, at)
    signed = PersonDecision(subject, choice, words, tuple(parts), person, at, signer(unsigned.message()))
    _parse(signed.to_bytes())
    return signed


def verify_decision(
    raw: bytes, *, subject: StudySubject, person: str, public_key: Ed25519PublicKey
) -> PersonDecision:
    """Return the decision that a file holds, once it is known to be this person's, about exactly this study.

    Args:
        raw: the file.
        subject: what it must be about.
        person: who must have decided.
        public_key: that person's.

    Raises:
        ApprovalError: it is malformed, about something else or of somebody else, or its signature does not verify.
    """
    decision = _parse(raw)
    if decision.person != person:
        raise ApprovalError(f"the decision is of {decision.person!r}, not of {person!r}", _REMEDY)
    for name in ("federation", "site", "study"):
        found, expected = getattr(decision.subject, name), getattr(subject, name)
        if found != expected:
            raise ApprovalError(f"the decision is for {name} {found!r}, not for {expected!r}", _REMEDY)
    if decision.subject.plan_digest != subject.plan_digest:
        raise ApprovalError(
            f"{person} decided about plan {decision.subject.plan_digest}, this plan is {subject.plan_digest}",
            _REMEDY,
        )
    try:
        public_key.verify(decision.signature, decision.message())
    except InvalidSignature as error:
        raise ApprovalError(
            f"the decision of {person} was not signed with the key that approvers.yaml states for {person}",
            _REMEDY,
        ) from error
    return decision


def tally(decisions: Iterable[PersonDecision], approvers: Approvers) -> Consent:
    """Return what verified decisions come to.

    Args:
        decisions: verified, at most one of each person.
        approvers: the people as they are now; a decision of anybody else counts nothing.
    """
    chosen = {one.person: one.choice for one in decisions}
    by_person = {name: chosen[name] for name in approvers.people if name in chosen}
    choices = list(by_person.values())
    missing = max(approvers.needed - choices.count(Choice.APPROVE), 0)
    if Choice.WITHDRAW in choices:
        return Consent(ConsentState.WITHDRAWN, 0, by_person)
    if Choice.REFUSE in choices:
        return Consent(ConsentState.REFUSED, 0, by_person)
    return Consent(ConsentState.WAITING if missing else ConsentState.APPROVED, missing, by_person)


def _texts(decision: PersonDecision) -> dict[str, str]:
    subject = decision.subject
    return {
        "format": FORMAT,
        "federation": subject.federation,
        "site": subject.site,
        "study": subject.study,
        "plan_digest": subject.plan_digest,
        "decision": decision.choice.value,
        "words": decision.words,
        "person": decision.person,
        "at": decision.at,
    }


def _counted(parts: Sequence[str]) -> list[bytes]:
    return [part.encode() for part in parts]


def _parse(raw: bytes) -> PersonDecision:
    if len(raw) > MAX_BYTES:
        raise ApprovalError(f"the decision has {len(raw)} bytes, at most {MAX_BYTES}", _REMEDY)
    try:
        found = json.loads(raw.decode("ascii"))
    except (ValueError, RecursionError) as error:
        raise ApprovalError("the decision is not JSON in ASCII", _REMEDY) from error
    if fault := other_version(raw, FORMAT, "the decision"):
        raise ApprovalError(fault, REMEDY)
    if not isinstance(found, dict) or found.keys() != _FIELDS:
        raise ApprovalError(f"the decision does not have exactly the fields {', '.join(sorted(_FIELDS))}", _REMEDY)
    parts = found["parts"]
    texts = [*(found[name] for name in (*_TEXTS, "signature")), *(parts if isinstance(parts, list) else [None])]
    # Printable only: these texts end up on terminals, in pages and in logs.
    if not all(isinstance(text, str) and text.isprintable() for text in texts) or len(parts) > MAX_PARTS:
        raise ApprovalError("a field of the decision is not a printable text", _REMEDY)
    if found["format"] != FORMAT or found["decision"] not in set(Choice):
        raise ApprovalError(
            f"the decision is {found['decision'][:80]!r} of format {found['format'][:80]!r}", _REMEDY
        )
    subject = StudySubject(found["federation"], found["site"], found["study"], found["plan_digest"])
    choice, signature = Choice(found["decision"]), _signature(found["signature"])
    decision = PersonDecision(
        subject, choice, found["words"], tuple(parts), found["person"], found["at"], signature
    )
    # Refuses duplicate keys, other orders, spaces and trailing bytes at once.
    if decision.to_bytes() != raw:
        raise ApprovalError("the decision is not in its canonical form", _REMEDY)
    return decision


def _signature(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ApprovalError("the signature of the decision is not base64", _REMEDY) from error


def _canonical(values: Mapping[str, object]) -> bytes:
    return json.dumps(values, sort_keys=True, separators=(",", ":")).encode("ascii")
