"""May another plan take the place of the one that this site has, and what becomes of its approval?

Decides from the site's own files alone, without the plan: an approval names the digest, and state, records and
runs carry it in their names. A run has begun here when this site has answered a request of it, or a session for
one was set up. One that has finished is over.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from fedfair.errors import PlanError
from fedfair.ids import ParticipantId
from fedfair.plan.digest import format_digest, parse_digest
from fedfair.policy.site_config import load_site_config

_BEGUN = (".secagg", ".variates")
"""Files of a run that has begun; they are empty, or missing, before."""

_ANSWERED = ".answered"
"""The record of requests; it has a row from the first one on."""

_FINISHED = "finished"
SITE_FILE = "collaborator.yaml"


@dataclass(frozen=True, slots=True)
class SiteFolder:
    """Where one site keeps what belongs to a plan.

    Attributes:
        participant: the site.
        state: what it must not forget between two starts.
        runs: its own copies of runs, one folder for each.
        approval: its approval.
    """

    participant: ParticipantId
    state: Path
    runs: Path
    approval: Path


def state_stem(participant: str, plan_digest: bytes) -> str:
    """Return what the names of a site's files of state under one plan begin with."""
    return f"{participant}-{plan_digest.hex()[:16]}"


def site_folder(workspace: Path) -> SiteFolder | None:
    """Return where a site keeps its files; None in a workspace without a `collaborator.yaml`.

    Raises:
        PlanError: the file breaks its schema.
    """
    path = workspace / SITE_FILE
    if not path.exists():
        return None
    config = load_site_config(path)
    name = ParticipantId(config.collaborator)
    approval = workspace / "approvals" / f"{name}.json" if config.approval is None else Path(config.approval)
    return SiteFolder(name, workspace / "state", workspace / "runs" / name, approval)


def approved_digest(site: SiteFolder) -> bytes | None:
    """Return the digest that this site's approval names; None where there is no readable approval."""
    try:
        return parse_digest(str(json.loads(site.approval.read_bytes())["plan_digest"]))
    except (OSError, ValueError, KeyError, TypeError, PlanError):
        return None


def check_not_begun(site: SiteFolder) -> None:
    """Refuse another plan while a run of the approved one has begun and is not over.

    Raises:
        PlanError: it has begun.
    """
    digest = approved_digest(site)
    if digest is None or not has_begun(site, digest):
        return
    raise PlanError(
        f"{site.participant} takes part in a run of the present plan ({format_digest(digest)}), and that run has "
        "begun; nothing was changed",
        "let it finish; or end it at the lead, and import the changed plan into a folder of its own: "
        "`fedfair workspace import ARCHIVE DIR`, with this site's cert/ and collaborator.yaml copied there",
    )


def has_begun(site: SiteFolder, plan_digest: bytes) -> bool:
    """Return whether a run of this plan has begun here and is not over.

    Raises:
        PlanError: a collaborator runs here, so that nobody can tell.
    """
    stem = state_stem(site.participant, plan_digest)
    begun = any(_has_content(site.state / f"{stem}{ending}") for ending in _BEGUN)
    begun = begun or _has_rows(site.state / f"{stem}{_ANSWERED}")
    return begun and not _is_over(site, format_digest(plan_digest))


def void_approval(site: SiteFolder) -> Path | None:
    """Move an approval out of the way, where it stays as a record; return where it was.

    Raises:
        OSError: it cannot be moved.
    """
    digest = approved_digest(site)
    if digest is None:
        return None
    kept = site.approval.parent / "void"
    kept.mkdir(exist_ok=True)
    site.approval.replace(kept / f"{state_stem(site.participant, digest)}.json")
    return site.approval


def _has_rows(path: Path) -> bool:
    """Return whether the record of requests has a row; one that cannot be read may have."""
    if not path.is_file() or not path.stat().st_size:
        return False
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=0)) as connection:
            (count,) = connection.execute("SELECT count(*) FROM remembered").fetchone()
            return bool(count)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
            raise PlanError(
                f"a collaborator runs here and has {path}; nothing was changed",
                "stop it, then run the same command again",
            ) from error
        return True
    except sqlite3.Error:
        return True


def _has_content(path: Path) -> bool:
    if path.is_dir():
        return any(path.iterdir())
    return path.is_file() and path.stat().st_size > 0


def _is_over(site: SiteFolder, plan_digest: str) -> bool:
    states = [_state(path, plan_digest) for path in sorted(site.runs.glob("*/result.json"))]
    told = [state for state in states if state]
    return bool(told) and all(state == _FINISHED for state in told)


def _state(path: Path, plan_digest: str) -> str:
    """Return where the run of a result stands; empty for one of another plan."""
    try:
        result = json.loads(path.read_bytes())
        return str(result.get("state")) if result.get("plan_digest") == plan_digest else ""
    except (OSError, ValueError, AttributeError):
        return "unreadable"
