"""One worker's part of a sweep: it runs points one after the other and keeps the records it has loaded.

Whatever engine it works for, a point gives what `fedfair simulate` gives for the same plan on one thread. A fault
that has a name (a plan that the data refute, a training that diverges) becomes a value: it must travel between
processes, and it must not stop the other points.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from fedfair.errors import FedfairError
from fedfair.ids import ParticipantId
from fedfair.plan.schema import Plan
from fedfair.results.document import ResultDocument
from fedfair.run.training_run import Progress
from fedfair.simulation.simulate import SimulationOutcome, simulate_sites
from fedfair.studies.sweep.events import Failure
from fedfair.tables.dataset import Splits
from fedfair.tables.source import federation_key, load_federation

OnRound = Callable[[int], None]
"""Called with the number of rounds done, after every sum."""


class PointRunner:
    """Runs points in one process, loading records only when they are not those of the last point.

    Args:
        root: the workspace of the plan.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._key = ""
        self._sites: Mapping[ParticipantId, Splits] = {}

    def attempt(self, plan: Plan, on_round: OnRound = lambda _: None) -> ResultDocument | Failure:
        """Return the result of a plan (`fedfair/result/1`), or why there is none."""
        try:
            return self.outcome(plan, on_round).result
        except FedfairError as error:
            return Failure(error.message, error.remedy)
        except OSError as error:
            return Failure(f"{error.strerror or error} ({error.filename})")

    def outcome(self, plan: Plan, on_round: OnRound = lambda _: None) -> SimulationOutcome:
        """Return the result of a plan with its model and its losses.

        Raises:
            FedfairError: its records cannot be loaded, or training left the finite numbers.
        """

        def heard(progress: Progress) -> None:
            on_round(int(progress.round))

        return simulate_sites(plan, self.records(plan), self._root, on_progress=heard)

    def records(self, plan: Plan) -> Mapping[ParticipantId, Splits]:
        """Return the records of all sites, read anew only where they are not those of the last plan.

        Raises:
            FedfairError: they cannot be loaded.
        """
        key = federation_key(plan)
        if key != self._key:
            # What was loaded is let go first: two data sets at once may not fit.
            self._key, self._sites = "", {}
            self._sites = load_federation(plan, self._root)
            self._key = key
        return self._sites
