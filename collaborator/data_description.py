"""Signs a site's own words about its records: `NAME.data.json`, for the passport of a model."""

from __future__ import annotations

from pathlib import Path

from collaborator.joining import check_roster
from collaborator.plan_code import site_name
from fedfair.errors import PassportError
from fedfair.identity.store import load_signing_key
from fedfair.passport.site_description import DRAFT, described, read_words, to_text
from fedfair.plan.digest import format_digest
from fedfair.plan.loading import load_plan
from fedfair.policy.site_config import load_site_config
from fedfair.process.passphrase import own_passphrase
from fedfair.store.atomic_file import write_whole
from fedfair.training.known_digest import digest_of


def write_draft(path: Path) -> None:
    """Write a draft of a site's words.

    Raises:
        PassportError: there is such a file.
    """
    if path.exists():
        raise PassportError(f"{path} exists", "edit it, or name another file with --words")
    write_whole(path, DRAFT)


def write_description(
    name: str | None, config: Path, plan_file: Path, words: Path, cert_folder: Path, passphrase_file: Path | None
) -> Path:
    """Write a site's signed description of its records beside its configuration, and return where it is.

    Args:
        name: the site's; None for that of its configuration.
        config: its `collaborator.yaml`.
        plan_file: the plan that uses the records.
        words: file of the site's words.
        cert_folder: of its key.
        passphrase_file: of this key; None where there is none, or it is asked for.

    Raises:
        FedfairError: a file is missing or malformed, or the plan pins another key for the site.
    """
    plan = load_plan(plan_file)
    site = site_name(plan, load_site_config(config), config, name)
    said = read_words(words)
    key = load_signing_key(cert_folder, site, own_passphrase(cert_folder, site, passphrase_file))
    check_roster(plan, site, key.public_key().public_bytes_raw())
    digest = digest_of(plan, plan_file)
    target = config.parent / f"{site}.data.json"
    write_whole(target, to_text(described(said, plan, format_digest(digest), site, key)))
    return target
