"""This site's own note of whose records counted in which run, on the disk before the first answer of each run.

    withdrawals/<name>.counted.sqlite    beside the record of withdrawals

One file for all plans; a process has it for the time of one look. What is in it is decided by
`fedfair.withdrawal.lineage`. None of it leaves this site.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path

from fedfair.errors import StateError
from fedfair.plan.derived import earlier_plans, is_noised
from fedfair.plan.digest import format_digest
from fedfair.plan.schema import Plan
from fedfair.policy.aggregation_request import AggregationRequest
from fedfair.policy.plan_check import PolicyError
from fedfair.policy.site_config import SiteConfig
from fedfair.store.table_file import Content, TableFile
from fedfair.withdrawal.lineage import CountedRun, CountedRuns
from fedfair.withdrawal.owners import Names
from fedfair.withdrawal.together import together_term
from fedfair.withdrawal.tombstone_file import tombstone_file
from fedfair.withdrawal.tombstones import Tombstones

COUNTED = Content(
    "this site's note of whose records counted in which run",
    "copy withdrawals/ back from a backup; without it nobody knows in which runs a person counted",
)
PATIENCE_SECONDS = 60.0


class RunLineage:
    """The note of one site.

    Args:
        config: the site's.
    """

    def __init__(self, config: SiteConfig) -> None:
        self._file = tombstone_file(config)
        self._path = None if self._file is None else self._file.path.with_suffix(".counted.sqlite")
        self._policy, self._name = config.policy, config.collaborator

    def make_key(self) -> None:
        """Let this site remember whose records counted, from now on."""
        if self._file is not None:
            self._file.made_key()

    @contextmanager
    def looked_at(self) -> Iterator[CountedRuns]:
        """Yield the runs, while no other process changes them.

        Raises:
            FedfairError: the file is damaged, or cannot be read.
        """
        if self._path is None or not self._path.exists():
            yield CountedRuns({})
            return
        with closing(TableFile(self._path, COUNTED, PATIENCE_SECONDS)) as table:
            yield CountedRuns(table)

    def check(self, plan: Plan) -> int:
        """Hold a plan against those who have withdrawn, before anything is sent; return how many these are.

        Raises:
            PolicyError: too few have withdrawn since an earlier run.
            StateError: the record of withdrawals is older than at the last run, or damaged.
        """
        withdrawn = self._withdrawn()
        with self.looked_at() as runs:
            if runs.runs and not withdrawn.is_after(*_head(runs.runs[-1])):
                raise StateError(
                    f"the record of withdrawals is older than at the run of {runs.runs[-1].at[:10]}, which knew "
                    f"of {runs.runs[-1].withdrawn[0]} persons",
                    "copy withdrawals/ back from this site's newest backup; who has withdrawn would count again",
                )
            broken = together_term(plan, self._policy, runs, withdrawn.names)
        if broken is not None:
            raise PolicyError(self._name, (broken,))
        return len(withdrawn.entries)

    def note(self, run: CountedRun, names: Mapping[str, Names]) -> None:
        """Note a start of a run; it is on the disk when this returns. Arguments as of `CountedRuns.noted`.

        Raises:
            FedfairError: it cannot be written.
        """
        if self._path is None or not names:
            return
        with closing(TableFile(self._path, COUNTED, PATIENCE_SECONDS)) as table:
            rows = CountedRuns(table).noted(run, names)
            if rows:
                table.write(rows)

    def withdrawn_now(self) -> tuple[int, str]:
        """Return how many have withdrawn, and the chain value of the last of them."""
        found = self._withdrawn()
        return len(found.entries), found.head.hex()

    def last_run(self, plan_digest: str) -> str | None:
        """Return the id of the last run of a plan in which this site counted."""
        with self.looked_at() as runs:
            return next((one.run for one in reversed(runs.runs) if one.plan == plan_digest), None)

    def _withdrawn(self) -> Tombstones:
        return Tombstones() if self._file is None else self._file.load()


def _head(run: CountedRun) -> tuple[int, bytes]:
    return run.withdrawn[0], bytes.fromhex(run.withdrawn[1])


class CountedStart:
    """Notes the runs that one process of a site takes part in.

    Args:
        lineage: the site's note.
        plan: the plan.
        plan_digest: of it, 32 bytes.
        model: the saved model of this site's own runs that the plan begins with, <run>/save/<file>; None for none.
        names: by split, whose each record is; empty where nothing says so.
        clock: returns the time in UTC.
    """

    def __init__(
        self,
        lineage: RunLineage,
        plan: Plan,
        plan_digest: bytes,
        model: Path | None,
        names: Mapping[str, Names],
        clock: Callable[[], datetime],
    ) -> None:
        self._lineage, self._plan, self._digest = lineage, plan, format_digest(plan_digest)
        self._model, self._names, self._clock = model, names, clock
        # What had withdrawn when the records were read; a later one counts from the next start on.
        self._withdrawn = lineage.withdrawn_now() if names else (0, "")
        self._noted = set[str]()

    def answering(self, request: AggregationRequest) -> None:
        """Note the run of a request that is about to be answered, once.

        Raises:
            FedfairError: it cannot be written; nothing may be answered.
        """
        if not self._names or request.run in self._noted:
            return
        done = request.round - 1 if request.purpose.statistic.is_round else request.round
        run = CountedRun(
            request.run,
            self._digest,
            self._plan.federation.name,
            done,
            self._clock().isoformat(timespec="seconds"),
            is_noised(self._plan),
            request.on_demand,
            () if request.on_demand else self._follows(),
            self._withdrawn,
        )
        self._lineage.note(run, self._names)
        self._noted.add(request.run)

    def _follows(self) -> tuple[str, ...]:
        of_models = () if self._model is None else (self._model.parents[1].name,)
        plans = reversed(earlier_plans(self._plan))
        of_plans = (run for digest in plans if (run := self._lineage.last_run(digest)) is not None)
        return tuple(dict.fromkeys((*of_models, *itertools.islice(of_plans, 1))))
