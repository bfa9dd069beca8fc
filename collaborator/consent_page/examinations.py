"""Examinations of studies beside the page: one at a time, and again once what one looks at has changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from collaborator.study_review.examination import Examination
from fedfair.consent.inbox import StudyFolder
from fedfair.errors import FedfairError
from fedfair.policy.site_config import load_site_config

Stamp = tuple[tuple[str, int, int], ...]


class Examinations:
    """What is known of each study; call `close` at the end.

    Args:
        config_file: the site's `collaborator.yaml`.
        examine: looks at a plan, in a process of its own.
    """

    def __init__(self, config_file: Path, examine: Callable[[Path, Path], Examination]) -> None:
        self._config_file = config_file
        self._examine = examine
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="examination")
        self._found: dict[str, tuple[Stamp, Future[Examination]]] = {}

    def of(self, folder: StudyFolder) -> Examination | None:
        """Return what was found; None while it is being looked for.

        Raises:
            FedfairError: the site's own file cannot be read.
        """
        stamp = tuple(self._stamps(folder))
        known, future = self._found.get(folder.name, ((), None))
        if future is None or known != stamp:
            future = self._thread.submit(self._look, folder.plan)
            self._found[folder.name] = stamp, future
        return future.result() if future.done() else None

    def close(self) -> None:
        """Begin no further examination."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _look(self, plan: Path) -> Examination:
        try:
            return self._examine(self._config_file, plan)
        except FedfairError as fault:
            return Examination(faults={"examination": fault.diagnostics()})

    def _stamps(self, folder: StudyFolder) -> Iterator[tuple[str, int, int]]:
        """Yield name, length and time of everything that an examination reads."""
        home, site = self._config_file.parent, load_site_config(self._config_file)
        data = site.data
        stated = (data.train, data.test, data.root, site.ledger, site.history)
        own = (self._config_file, home / "ledger.sqlite", home / "history" / f"{site.collaborator}.sqlite")
        for path in (*own, *(Path(text) for text in stated if text is not None)):
            yield _stamp(path)
        for path in sorted(folder.workspace.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield _stamp(path)


def _stamp(path: Path) -> tuple[str, int, int]:
    try:
        found = path.stat()
    except OSError:
        return str(path), -1, -1
    return str(path), found.st_size, found.st_mtime_ns
