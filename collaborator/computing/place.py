"""Where the computing process of a site is started, what it may read there, and what is hidden from it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from collaborator.computing.launching import Launch
from fedfair.ids import ParticipantId
from fedfair.plan.fields import is_reference
from fedfair.plan.module_code import freeze
from fedfair.plan.schema import Plan
from fedfair.policy.site_config import SiteConfig
from fedfair.policy.site_sql import SqlSection, with_absolute_file
from fedfair.withdrawal.tombstone_file import tombstone_file

OF_THE_SITE = ("logs", "runs", "studies", "approvers.yaml", "site.yaml", "consortium.yaml")
"""Further files of a site's folder that are nothing to what computes."""


@dataclass(frozen=True, slots=True)
class SiteFolders:
    """The files of a site, as far as they decide what its computing process may read.

    Attributes:
        workspace: the folder that the plan belongs to.
        code: the folder of the plan's code as the service has looked at it.
        state: the folder of what the site must not forget, in the folder of its `collaborator.yaml`.
        hidden: folders and files with its keys, approvals, ledger and records of what it has sent.
    """

    workspace: Path
    code: Path
    state: Path
    hidden: tuple[Path, ...]


def launch_of(plan: Plan, config: SiteConfig, participant: ParticipantId, folders: SiteFolders) -> Launch:
    """Return how the computing process of a site is started; nothing is started yet."""
    terms, sql, folder = config.worker, config.data.sql, folders.state.parent
    own = folders.state / "worker" if terms.folder is None else Path(terms.folder)

    def prepare(code: Path) -> None:
        if plan.task.references:
            freeze(plan.task.references, folders.code, code)

    return Launch(
        terms,
        own / participant,
        folder / "logs" / f"{participant}_worker.log",
        () if sql is None else tuple(name for name in (sql.url_env, sql.password_env) if name is not None),
        tuple(_reads(plan, config, folders)),
        tuple(_hidden(folders)),
        reads_a_database(config),
        prepare,
    )


def reads_a_database(config: SiteConfig) -> bool:
    """Return whether a site's records come over the network."""
    sql = config.data.sql
    return sql is not None and not tuple(_database_files(sql))


def _reads(plan: Plan, config: SiteConfig, folders: SiteFolders) -> Iterator[Path]:
    """Yield what a process reads of its site: the plan, the records, whose do not count, and the frozen part."""
    data, sql, named = config.data, config.data.sql, plan.task.data
    if plan.file is not None:
        yield plan.file.resolve().parent
    yield from (Path(path) for path in (data.train, data.test, data.root, config.frozen) if path is not None)
    file = tombstone_file(config)
    if file is not None:
        yield from (path for path in (file.path, file.key_path) if path.exists())
    if data.root is None and isinstance(named, str) and is_reference(named):
        yield folders.workspace
    if sql is not None:
        files = (sql.url_file, sql.password_file, sql.query_file, sql.test_query_file)
        yield from (Path(path) for path in files if path is not None)
        yield from _database_files(sql)


def _database_files(sql: SqlSection) -> Iterator[Path]:
    found: list[Path] = []

    def note(path: str) -> str:
        found.append(Path(path))
        return path

    if sql.url is not None:
        with_absolute_file(sql.url, note)
    yield from found


def _hidden(folders: SiteFolders) -> Iterator[Path]:
    """Yield what no process that computes may read, whatever folder it is in."""
    site = folders.state.parent.resolve()
    yield folders.state
    for stated in folders.hidden:
        # Beside a file lie what it was before, what is about to be written to it, and its lock.
        yield from (stated, *stated.parent.glob(f"{stated.name}*"))
        if not stated.is_dir() and not site.is_relative_to(stated.parent.resolve()):
            yield stated.parent
    yield from (site / name for name in OF_THE_SITE)
