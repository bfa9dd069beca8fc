"""`consortium.yaml`: the members of a federation that stands, their keys and roles, signed by the lead.

    format: fedfair/consortium/1
    federation: heart
    number: 2
    hub: {host: hub.example.org, port: 8443, key: "ed25519:..."}
    members:
      anna: {role: lead, key: "ed25519:..."}
      bert: {role: researcher, key: "ed25519:..."}
      clinic-a: {role: site, key: "ed25519:..."}
    signature: <base64>

Signed is what the file says, in the one spelling of `plan.digest.canonical_json`, and not its text; so comments
and the order of lines may change. Exactly one member is the lead. A site takes the first file from the lead by
hand, as it takes a plan. A later one counts only where its number is higher, it is of the same federation, and
the lead that is known has signed it; the new file may name another lead, whose first own list is then what a new
site takes by hand. Later lists come with the record of acts (`fedfair.consortium.record`).

    consortium = read_consortium(Path("consortium.yaml"))
    consortium.member("clinic-a").public_key
    later.check_follows(consortium)
"""

from __future__ import annotations

import base64
import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal

import yaml
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from pydantic import Field

from fedfair.consortium.faults import ConsortiumError, RecordCheck
from fedfair.errors import FedfairError, IdentityError
from fedfair.identity.roster import parse_roster
from fedfair.identity.signing import decode_base64, parse_signing_key
from fedfair.ids import AGGREGATOR, FederationName, ParticipantId
from fedfair.plan import fields
from fedfair.plan.digest import canonical_json
from fedfair.plan.validation_messages import validated
from fedfair.plan.yaml_reader import decoded, parse_document
from fedfair.signed_message import labelled_message

FORMAT = "fedfair/consortium/1"
LABEL = "fedfair/consortium/v1"
MAX_BYTES = 1 << 16
FILE = "consortium.yaml"
"""Its name in the folder of a hub, a site or a researcher."""

_ASK = "ask the lead for the present consortium.yaml"


class MemberRole(enum.Enum):
    """What a member is; the value is the word in the file. The hub is no member and has its own key."""

    LEAD = "lead"
    RESEARCHER = "researcher"
    OBSERVER = "observer"
    SITE = "site"
    HUB = "hub"


class Right(enum.Enum):
    """A thing that a member may be allowed to do; the value completes "may"."""

    CHANGE_MEMBERS = "change the list of members"
    SUBMIT = "submit a study"
    DECIDE = "approve or refuse a study in which it takes part"
    WITHDRAW_OWN = "withdraw a study of its own"
    WITHDRAW_ANY = "withdraw any study"
    LEAVE = "withdraw from a study that it approved"
    DRIVE = "start and end a study"
    RESULTS_OWN = "read the results of studies of its own"
    RESULTS_JOINED = "read the results of studies in which it takes part"
    RESULTS_ALL = "read the results of all studies"


RIGHTS: Mapping[MemberRole, frozenset[Right]] = MappingProxyType(
    {
        MemberRole.LEAD: frozenset({Right.CHANGE_MEMBERS, Right.SUBMIT, Right.WITHDRAW_ANY, Right.RESULTS_ALL}),
        MemberRole.RESEARCHER: frozenset({Right.SUBMIT, Right.WITHDRAW_OWN, Right.RESULTS_OWN}),
        MemberRole.OBSERVER: frozenset(),
        MemberRole.SITE: frozenset({Right.DECIDE, Right.LEAVE, Right.RESULTS_JOINED}),
        MemberRole.HUB: frozenset({Right.DRIVE}),
    }
)
"""What each role may do. Every member may read the record, and with it the status of every study."""


def _key(text: str) -> str:
    parse_signing_key(text)
    return text


class HubPlace(fields.Section):
    """Where the hub is, and by which key it is known."""

    host: fields.Host
    """host name or IP address of the hub"""
    port: int = Field(default=8443, ge=1, le=65535)
    """TCP port, 1 to 65535"""
    key: Annotated[str, fields.parsed_by(_key)]
    """the hub's signing key, as ed25519:<base64>"""


class MemberEntry(fields.Section):
    """One member."""

    role: Literal["lead", "researcher", "observer", "site"]
    """what it may do: lead, researcher, observer or site"""
    key: Annotated[str, fields.parsed_by(_key)]
    """its signing key, as ed25519:<base64>"""


class ConsortiumFile(fields.Section):
    """The file as it is written."""

    format: Literal["fedfair/consortium/1"]
    """fedfair/consortium/1"""
    federation: fields.NameOfFederation
    """name of the federation"""
    number: int = Field(ge=1, le=1_000_000)
    """counts the lists of members, from 1; a later list has a higher number"""
    hub: HubPlace
    """where the hub is: {host: ..., port: ..., key: ...}"""
    members: dict[fields.ParticipantName, MemberEntry] = Field(min_length=1, max_length=1000)
    """the members by name: {role: ..., key: ...}"""
    signature: str = Field(default="", max_length=100)
    """the lead's signature, written by `fedfair hub members`"""

    def faults(self) -> Iterable[fields.Fault]:
        """Return what is wrong with the list as a whole."""
        leads = [name for name, member in self.members.items() if member.role == MemberRole.LEAD.value]
        if len(leads) != 1:
            shown = ", ".join(leads) or "nobody"
            yield fields.Fault(("members",), f"the lead is {shown}", "give the role lead to exactly one member")
        owner: dict[str, str] = {self.hub.key: "the hub"}
        for name, member in self.members.items():
            first = owner.setdefault(member.key, name)
            if first != name:
                remedy = "each member makes a key of its own: `fedfair certs request`"
                yield fields.Fault(("members", name, "key"), f"is the key of {first} too", remedy)


@dataclass(frozen=True, slots=True)
class ConsortiumMember:
    """One member.

    Attributes:
        name: as its certificate names it; "aggregator" for the hub.
        role: of the member.
        public_key: its signing key.
    """

    name: ParticipantId
    role: MemberRole
    public_key: Ed25519PublicKey

    def may(self, right: Right) -> bool:
        """Return whether its role has a right."""
        return right in RIGHTS[self.role]


class Consortium:
    """A list of members whose signature was verified.

    Args:
        file: what the list says.
        raw: its bytes, as they are signed for by an act of the record.

    Attributes:
        raw: its bytes.
        federation: its name.
        number: of this list.
        host: of the hub.
        port: of the hub.
        members: all members by name, without the hub.
    """

    def __init__(self, file: ConsortiumFile, raw: bytes) -> None:
        self.raw = raw
        self._file = file
        self.federation = FederationName(file.federation)
        self.number = file.number
        self.host, self.port = file.hub.host, file.hub.port
        keys = parse_roster({name: member.key for name, member in file.members.items()})
        self.members: Mapping[ParticipantId, ConsortiumMember] = MappingProxyType(
            {name: ConsortiumMember(name, MemberRole(file.members[name].role), key) for name, key in keys.items()}
        )

    @cached_property
    def hub(self) -> ConsortiumMember:
        """The hub, which signs every entry of the record."""
        return ConsortiumMember(AGGREGATOR, MemberRole.HUB, parse_signing_key(self._file.hub.key))

    @cached_property
    def lead(self) -> ConsortiumMember:
        """The one member who may change the list."""
        return next(member for member in self.members.values() if member.role is MemberRole.LEAD)

    def member(self, name: str) -> ConsortiumMember:
        """Return a member, or the hub, by name.

        Raises:
            ConsortiumError: nobody has this name.
        """
        if name == AGGREGATOR:
            return self.hub
        found = self.members.get(ParticipantId(name))
        if found is None:
            raise ConsortiumError(
                RecordCheck.AUTHOR,
                f"{name!r} is no member of {self.federation} by its list {self.number}",
                "the lead adds a member: `fedfair hub members`",
            )
        return found

    def check_follows(self, known: Consortium) -> None:
        """Check that this list may take the place of the one that is known.

        Raises:
            ConsortiumError: it is of another federation, no later one, or the known lead has not signed it.
        """
        if self.federation != known.federation:
            raise ConsortiumError(
                RecordCheck.FEDERATION,
                f"a list of {self.federation} cannot follow one of {known.federation}",
                _ASK,
            )
        if self.number <= known.number:
            raise ConsortiumError(
                RecordCheck.MEMBERS, f"list {self.number} of members cannot follow list {known.number}", _ASK
            )
        _check_signature(self._file, known.lead)


def sign_consortium(values: Mapping[str, object], signing_key: Ed25519PrivateKey) -> bytes:
    """Return the file of a list of members, signed.

    Args:
        values: what the file says; a signature in it is replaced.
        signing_key: of the lead: of this list where it is the first, else of the list before.

    Raises:
        PlanError: the values are no list of members.
    """
    plain = {name: value for name, value in values.items() if name != "signature"}
    file = validated(ConsortiumFile, parse_document(_written(plain), Path(FILE)))
    signature = base64.b64encode(signing_key.sign(_message(file))).decode("ascii")
    return _written({**plain, "signature": signature}).encode("ascii")


def parse_consortium(
    raw: bytes, path: Path = Path(FILE), *, signed_by: ConsortiumMember | None = None
) -> Consortium:
    """Return a list of members whose signature verifies.

    Args:
        raw: the file's content.
        path: where it came from, for messages.
        signed_by: who must have signed; None for the lead that the list itself names, as of a first list.

    Raises:
        PlanError: it is no list of members.
        ConsortiumError: the signature is not the lead's.
    """
    if len(raw) > MAX_BYTES:
        raise ConsortiumError(RecordCheck.FORM, f"{path} has {len(raw)} bytes, at most {MAX_BYTES}", _ASK)
    file = validated(ConsortiumFile, parse_document(decoded(raw, path), path))
    consortium = Consortium(file, raw)
    _check_signature(file, signed_by or consortium.lead)
    return consortium


def read_consortium(path: Path) -> Consortium:
    """Return the list of members in a file that was taken from the lead by hand.

    Raises:
        FedfairError: it is missing, or is no list that the lead it names has signed.
    """
    try:
        with path.open("rb") as source:
            raw = source.read(MAX_BYTES + 1)
    except OSError as error:
        raise FedfairError(f"{path} cannot be read: {error.strerror}", _ASK) from error
    return parse_consortium(raw, path)


def _check_signature(file: ConsortiumFile, lead: ConsortiumMember) -> None:
    try:
        lead.public_key.verify(decode_base64(file.signature, "the signature of the list"), _message(file))
    except (InvalidSignature, IdentityError) as error:
        raise ConsortiumError(
            RecordCheck.SIGNATURE,
            f"list {file.number} of the members of {file.federation} is not signed by the lead, {lead.name}",
            f"{_ASK}; the lead signs it with `fedfair hub members`",
        ) from error


def _message(file: ConsortiumFile) -> bytes:
    values = file.model_dump(exclude={"signature"})
    return labelled_message(LABEL, [canonical_json(values)])


def _written(values: Mapping[str, object]) -> str:
    return yaml.safe_dump(values, sort_keys=False, width=200)
