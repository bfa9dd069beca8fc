"""Sites that have certificate folders of their own, as on hosts of their own, and what operators do there."""

import shutil
from datetime import UTC, datetime
from pathlib import Path

import yaml

from fedfair.cli.loopback import Workspace
from fedfair.identity import bundle
from fedfair.identity.authority_store import issue, load_authority, load_register, revoke
from fedfair.identity.request import parse_request
from fedfair.identity.store import load_trust, renew_site, trust_folder


def copy_site(lead: Path, name: str, folder: Path) -> Path:
    """Move a site's keys from the lead's certificate folder to one of its own; return that."""
    folder.mkdir(parents=True)
    shutil.move(lead / name, folder / name)
    for file in ("ca.crt", "revoked.crl"):
        shutil.copy(trust_folder(lead) / file, folder / file)
    return folder


def with_own_folders(workspace: Workspace) -> dict[str, Path]:
    """Give each site of a workspace a certificate folder of its own; return them by name."""
    folders = {}
    for name in workspace.collaborators:
        file = workspace.folder / f"{name}.yaml"
        folders[name] = copy_site(workspace.folder / "cert", name, workspace.folder / "hosts" / name / "cert")
        site = yaml.safe_load(file.read_text())
        file.write_text(yaml.safe_dump({**site, "cert_folder": str(folders[name])}, sort_keys=False))
    return folders


def renew(
    lead: Path,
    folder: Path,
    name: str,
    now: datetime | None = None,
    days: int = 365,
    passphrase: bytes | None = None,
) -> None:
    """Do what two operators do for a renewal: request, sign, install."""
    now = datetime.now(UTC) if now is None else now
    request = parse_request(renew_site(folder, name, passphrase))
    certificate = issue(lead, load_authority(lead, now, None), request, hosts=(), now=now, days=days)
    file = folder / f"{name}.certificate.pem"
    file.write_bytes(bundle.make_bundle(certificate, load_trust(lead, now)))
    bundle.install_bundle(folder, bundle.read_bundle(file), now, passphrase)


def revoke_name(lead: Path, name: str, now: datetime | None = None) -> None:
    """Put every certificate of a participant on the authority's list; nobody, where the name is unknown."""
    now = datetime.now(UTC) if now is None else now
    serials = {issued.serial for issued in load_register(lead) if issued.name == name}
    revoke(lead, load_authority(lead, now, None), frozenset(serials), now)
