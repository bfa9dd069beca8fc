"""How a site joins a federation with one archive: what it has, what comes next, and whom it believes.

The lead's archive comes twice. The first is an invitation: from it a site learns the federation's name, makes its
keys and writes its request. The second is the answer: the final plan, and a certificate for these keys. Nothing in
either is believed because it is there:

- the authority counts once two people have compared its fingerprint by phone, and the one that an invitation has
  shown may not change before that;
- a certificate counts if that authority has signed it for a key that lies here, for this name and federation;
- the plan counts if this site has reviewed and signed its digest, and its roster pins the key that lies here.

    cert/<name>/joining.json     what the invitation has shown; no secret
    <name>.request.json          for the lead

How far a site has come is read from its files, so the same command resumes where it was left.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cryptography import x509

from fedfair.errors import ApprovalError, IdentityError, PlanError
from fedfair.identity import store
from fedfair.identity.authority import check_authority, federation_of
from fedfair.identity.bundle import Bundle, parse_bundle
from fedfair.identity.certificate import (
    CertifiedParticipant,
    decode_certificate,
    fingerprint,
    grouped,
    parse_participant,
    participant_of,
)
from fedfair.identity.files import read_tls_key, write_public
from fedfair.identity.request import make_request
from fedfair.ids import FederationName, parse_participant_id
from fedfair.plan.loading import load_plan
from fedfair.plan.public_keys import format_public_key
from fedfair.plan.schema import Plan
from fedfair.workspace.archive import certificates_of
from fedfair.workspace.create import PLAN_FILE
from fedfair.workspace.difference import unpacked_archive

FORMAT = "fedfair/joining/1"
AUTHORITY_FILE = "authority.pem"
"""In an archive: the authority's certificate, for an invitation."""

CERTIFICATE_ENDING = ".certificate.pem"
_JOINING = "joining.json"
_HEX = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Invitation:
    """An archive of the lead, read; nothing in it is believed yet.

    Attributes:
        raw: its bytes.
        source: its name, for people.
        plan: its plan.
        authority: the authority that it shows; None where it shows none.
        bundles: certificates by the name of their site, not parsed.
    """

    raw: bytes
    source: str
    plan: Plan
    authority: x509.Certificate | None
    bundles: dict[str, bytes]

    @property
    def federation(self) -> FederationName:
        """Return the federation that it invites to."""
        return FederationName(self.plan.federation.name)


@dataclass(frozen=True, slots=True)
class JoiningSite:
    """A site on its way.

    Attributes:
        folder: its workspace.
        participant: its name and federation.
    """

    folder: Path
    participant: CertifiedParticipant

    @property
    def cert_folder(self) -> Path:
        """Return the folder of its keys and certificates."""
        return self.folder / "cert"

    @property
    def keys(self) -> Path:
        """Return the folder of its own keys."""
        return self.cert_folder / self.participant.name

    @property
    def request_file(self) -> Path:
        """Return where its request is."""
        return self.folder / f"{self.participant.name}.request.json"

    @property
    def has_keys(self) -> bool:
        """Return whether both its keys are made."""
        return (self.keys / store.SIGNING_KEY).exists() and (self.keys / store.TLS_KEY).exists()

    @property
    def has_certificate(self) -> bool:
        """Return whether a certificate is installed."""
        return (self.keys / store.TLS_CERTIFICATE).exists()


def read_invitation(raw: bytes, source: str, now: datetime) -> Invitation:
    """Return what an archive of the lead holds.

    Args:
        raw: the archive.
        source: its name, for people.
        now: an aware time.

    Raises:
        PlanError: the archive is not sound, or its plan is not.
        IdentityError: its authority is not valid, or of another federation than its plan.
    """
    with unpacked_archive(raw, source) as plan_file:
        plan = load_plan(plan_file)
    files = certificates_of(raw)
    content = files.pop(AUTHORITY_FILE, None)
    authority = None
    if content is not None:
        authority = decode_certificate(content, f"the authority's certificate in {source}")
        check_authority(authority, now)
        _check_federation(authority, plan.federation.name, source)
    bundles = {
        name.removesuffix(CERTIFICATE_ENDING): content
        for name, content in files.items()
        if name.endswith(CERTIFICATE_ENDING)
    }
    return Invitation(raw, source, plan, authority, bundles)


def _check_federation(authority: x509.Certificate, federation: str, source: str) -> None:
    if federation_of(authority) != federation:
        raise IdentityError(
            f"{source} shows the authority of '{federation_of(authority)}', its plan is of '{federation}'",
            "ask the lead for the right archive",
        )


def joining_folder(given: Path | None, here: Path, federation: FederationName) -> Path:
    """Return the workspace of the site that joins: the folder that was given, this one if it is one, or a new one.

    Args:
        given: the folder that the person names.
        here: the present folder.
        federation: names the new folder.

    Raises:
        PlanError: the folder is the lead's.
    """
    joined = (here / PLAN_FILE).exists() or any((here / "cert").glob(f"*/{_JOINING}"))
    folder = given or (here if joined else here / federation)
    if (folder / "cert" / store.AUTHORITY_FOLDER).exists():
        raise PlanError(
            f"{folder} holds the federation's authority: it is the lead's workspace",
            "join with a folder of the site's own: --workspace DIR",
        )
    return folder


def known_name(folder: Path) -> str | None:
    """Return the name of the one site that has keys in a folder; None where there is none, or more than one."""
    names = [path.parent.name for path in (folder / "cert").glob(f"*/{store.SIGNING_KEY}")]
    return names[0] if len(names) == 1 else None


def joining_site(folder: Path, name: str, invitation: Invitation) -> JoiningSite:
    """Return the site that joins under a name.

    Raises:
        FedfairError: the name cannot be one, the plan does not have it, or the folder is another site's.
    """
    members = invitation.plan.federation.collaborators
    if parse_participant_id(name) not in members:
        raise PlanError(f"{name} is no collaborator of this plan", f"the plan names {', '.join(members)}")
    present = known_name(folder)
    if present not in {None, name}:
        raise IdentityError(
            f"{folder} is the folder of {present}, not of {name}", "join from a folder of the site's own"
        )
    return JoiningSite(folder, parse_participant(invitation.federation, name))


def begin(site: JoiningSite, invitation: Invitation, passphrase: bytes | None) -> bytes:
    """Make a site's keys, unless they are made, and its request; return the request.

    Raises:
        IdentityError: keys that are there do not open.
        OSError: a file cannot be written.
    """
    site.cert_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if site.has_keys:
        # A process died between keys and request, or the request was lost: the same keys ask again.
        name = site.participant.name
        tls_key = read_tls_key(site.keys / store.TLS_KEY, f"the TLS key of {name}", passphrase)
        request = make_request(
            site.participant, tls_key, store.load_signing_key(site.cert_folder, name, passphrase)
        )
    else:
        request = store.create_site(site.cert_folder, site.participant, passphrase)
    seen = "" if invitation.authority is None else fingerprint(invitation.authority).hex()
    told = {"format": FORMAT, "federation": site.participant.federation, "authority": seen}
    write_public(site.keys / _JOINING, json.dumps(told).encode("ascii"))
    write_public(site.request_file, request)
    return request


def check_same_federation(site: JoiningSite, invitation: Invitation) -> None:
    """Refuse an archive of another federation, or another authority, than the one that the site began with.

    Raises:
        IdentityError: it is of another one.
    """
    federation, seen = _begun_with(site)
    if federation and federation != invitation.federation:
        raise IdentityError(
            f"{site.participant.name} has asked to join '{federation}', {invitation.source} is of "
            f"'{invitation.federation}'",
            "join every federation from a folder of its own: --workspace DIR",
        )
    bundle = arrived_bundle(site, invitation)
    answered = None if bundle is None else bundle.ca
    shown = [authority for authority in (invitation.authority, answered) if authority is not None]
    if len(set(map(fingerprint, shown))) > 1:
        raise IdentityError(
            f"{invitation.source} shows two authorities", "somebody has changed it: have the lead send it again"
        )
    for authority in shown:
        if seen and fingerprint(authority).hex() != seen:
            raise IdentityError(
                f"{invitation.source} is of the authority {grouped(fingerprint(authority))}; the archive that "
                f"this site began with showed {grouped(bytes.fromhex(seen))}",
                "somebody has exchanged one of the two: call the lead and compare. If the federation really has a "
                f"new authority, move {site.keys} away and join again",
            )


def _begun_with(site: JoiningSite) -> tuple[str, str]:
    """Return the federation and the authority's fingerprint of the first archive; empty where it is not known."""
    path = site.keys / _JOINING
    if not path.exists():
        return "", ""
    try:
        told = json.loads(path.read_bytes())
        federation, seen = str(told["federation"]), str(told["authority"])
        known = told["format"] == FORMAT and (not seen or _HEX.fullmatch(seen) is not None)
    except (OSError, ValueError, KeyError, TypeError):
        known = False
    if not known:
        raise IdentityError(f"{path} is damaged", "remove it; then compare the authority with the lead")
    return federation, seen


def arrived_bundle(site: JoiningSite, invitation: Invitation) -> Bundle | None:
    """Return the lead's answer to this site's request; None where the archive has none.

    Raises:
        IdentityError: it is malformed, or names another site or federation.
    """
    name = site.participant.name
    content = invitation.bundles.get(name)
    if content is None:
        return None
    bundle = parse_bundle(content, f"{name}{CERTIFICATE_ENDING} in {invitation.source}")
    if bundle.certificate is None or participant_of(bundle.certificate) != site.participant:
        raise IdentityError(
            f"the certificate for {name} in {invitation.source} names somebody else", "ask the lead to sign again"
        )
    return bundle


def check_read_aloud(authority: x509.Certificate, read_aloud: str) -> None:
    """Check that the fingerprint that somebody has read aloud is the authority's.

    Args:
        authority: as it arrived.
        read_aloud: 64 hexadecimal digits; blanks, colons and capitals do not matter.

    Raises:
        IdentityError: it is another one, or no fingerprint.
    """
    told = re.sub(r"[\s:]", "", read_aloud).lower()
    if not _HEX.fullmatch(told):
        raise IdentityError(
            f"{read_aloud[:100]!r} is no fingerprint", "it has 64 digits and letters a to f; blanks do not matter"
        )
    if told != fingerprint(authority).hex():
        raise IdentityError(
            f"the archive comes from the authority {grouped(fingerprint(authority))}, and you were told "
            f"{grouped(bytes.fromhex(told))}; nothing was installed",
            "somebody may have exchanged the archive: have the lead send it in another way",
        )


def check_roster(plan: Plan, name: str, signing_key: bytes) -> None:
    """Check that a plan names a member and pins the signing key that lies here.

    Args:
        plan: the plan.
        name: the member.
        signing_key: 32 bytes, the public half of the key here.

    Raises:
        ApprovalError: it does not.
    """
    if name not in plan.federation.collaborators:
        known = ", ".join(plan.federation.collaborators)
        raise ApprovalError(f"{name} is no collaborator of this plan", f"the plan names {known}")
    pinned, key = plan.federation.roster.get(name), format_public_key(signing_key)
    if pinned is None:
        raise ApprovalError(
            f"the plan pins no signing key for {name}, so nobody could verify an approval",
            f"the plan's owner runs `fedfair plan enroll {name}.request.json` and sends it again",
        )
    if pinned != key:
        raise ApprovalError(
            f"the plan pins another signing key for {name}: {pinned}, this host has {key}",
            "use the host or --cert-folder with the right key, or have the new key enrolled",
        )


def checked_digest(given: str, found: str) -> None:
    """Check that the digest that somebody agrees to beforehand is the one that is there.

    Raises:
        ApprovalError: it is another one; nothing may be approved.
    """
    if given != found:
        raise ApprovalError(
            f"you agree to {given[:80]!r}, and this is {found}; nothing was approved",
            "read what has changed: `fedfair plan check`",
        )
