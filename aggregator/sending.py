"""What is sent on a stream: the steps that move a site, the requests for sums, the last words."""

from __future__ import annotations

import asyncio

from aggregator.broadcast import Broadcast, VectorMessage
from aggregator.connection import Connection
from aggregator.outcome import Ending, EndState
from aggregator.records import RunRecords
from aggregator.sum_reports import SumReports
from fedfair.audit.keeper import Occasion
from fedfair.rounds.events import SendMessage, SendState, SendSum, SendTotals
from fedfair.rounds.exit_reasons import TRY_AGAIN
from fedfair.run.state import RunState
from fedfair.run.training_run import TrainingRun
from fedfair.wire.frames import BroadcastKind, Finished, Refused, SecaggMessage, SumStart


class Sender:
    """Sends on the streams of one run, and has the bytes counted.

    Args:
        training_run: whose state is sent to a site that is not in step.
        records: pack that state.
        reports: count the bytes.
    """

    def __init__(self, training_run: TrainingRun, records: RunRecords, reports: SumReports) -> None:
        self._training_run = training_run
        self._records = records
        self._reports = reports
        self._packed: tuple[RunState, Broadcast] | None = None

    async def step(self, connection: Connection, effect: SendState | SendTotals | SendMessage) -> None:
        """Send what moves a site, or a message of secure aggregation."""
        match effect:
            case SendMessage(_, message, vector) if not vector:
                connection.send(SecaggMessage(message))
                self._reports.sent(len(message))
                return
            case SendMessage(_, message, vector):
                publication: Broadcast | VectorMessage = VectorMessage(message, vector)
            case SendTotals(_, totals):
                publication = Broadcast(BroadcastKind.TOTALS, totals)
            case SendState():
                publication = await self._state()
        connection.publish(publication)
        self._reports.sent(publication.nbytes)

    async def _state(self) -> Broadcast:
        """Return the present state of the run for whoever is not in step; packed once for all of them."""
        state = self._training_run.state
        if self._packed is None or self._packed[0] is not state:
            packed = await asyncio.to_thread(lambda: Broadcast(BroadcastKind.STATE, self._records.packed(state)))
            self._packed = state, packed
        return self._packed[1]

    def request(self, connection: Connection, effect: SendSum) -> None:
        """Ask a site for a sum."""
        request = effect.request
        place = (request.purpose, request.round, request.attempt)
        connection.ask(effect.sum_number, request.spec, Occasion(*place))
        connection.send(SumStart(effect.sum_number, *place, effect.state, effect.deadline_seconds))

    def farewell(self, ending: Ending) -> Finished | Refused:
        """Return the last words to a site."""
        if ending.state is EndState.FINISHED:
            return Finished(self._training_run.rounds_done, ending.words)
        words = f"the run was {ending.state.value}: {ending.words}"
        return Refused(words, ending.remedy, TRY_AGAIN[ending.why])
