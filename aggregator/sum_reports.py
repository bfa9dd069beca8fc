"""What each sum has cost and what there is to say of it: figures, the line of the metrics, news."""

from __future__ import annotations

import time
from collections.abc import Container, Sequence
from dataclasses import replace

from aggregator.records import RunRecords, SumFigures
from aggregator.transcript import RunTranscript
from fedfair.ids import ParticipantId
from fedfair.news.processors import Processor
from fedfair.news.sums import ChangesClipped, SumMeasured, ValuesReplaced, news_of_sum
from fedfair.rounds.events import Effect, Event, MessageArrived, Report, SendMessage, SendTotals, UploadArrived
from fedfair.rounds.federation import Federation
from fedfair.run.training_run import Progress
from fedfair.statistics.table import Purpose


class SumReports:
    """Reports the sums of one run, one after the other.

    Args:
        federation: the round rules, which time the answers.
        records: take the line of each sum.
        publish: takes the news.
        worst_group_size: of the objective, in (0, 1].
        transcript: receives the leaves of each sum; None where none is kept.
    """

    def __init__(
        self,
        federation: Federation,
        records: RunRecords,
        publish: Processor,
        worst_group_size: float,
        transcript: RunTranscript | None = None,
    ) -> None:
        self._transcript = transcript
        self._federation = federation
        self._records = records
        self._publish = publish
        self._worst_group_size = worst_group_size
        self._figures = SumFigures(time.monotonic())
        self._closed_at = self._figures.started
        self._clips = False
        self._replacing: set[Purpose] = set()

    def begin(self) -> None:
        """Start the clocks of a sum; its deadline is set before anybody is asked."""
        self._figures = SumFigures(time.monotonic())
        self._records.begin_work()

    def received(self, event: Event) -> None:
        """Count the bytes of an event."""
        if isinstance(event, UploadArrived):
            self._figures.bytes_in += len(event.payload)
        elif isinstance(event, MessageArrived):
            self._figures.bytes_in += len(event.message) + len(event.vector)

    def sent(self, count: int) -> None:
        """Count bytes that were sent."""
        self._figures.bytes_out += count

    def passed_over(self) -> None:
        """Count an answer beyond those that a sum needs; they come in every round and are not news."""
        self._figures.late += 1

    def close(self, effects: Sequence[Effect], connected: Container[ParticipantId]) -> None:
        """Count the cost of a sum, where one has closed: its total is written before its report is carried out."""
        due = 0
        for effect in effects:
            if isinstance(effect, SendMessage) and effect.participant in connected:
                due += len(effect.message) + len(effect.vector)
            elif isinstance(effect, SendTotals) and effect.participant in connected:
                due += len(effect.totals)
            elif isinstance(effect, Report):
                self._closed_at = time.monotonic()
                if self._transcript is not None:
                    # A leaf that the journal knows nothing of is cut off again; one that is missing stays so.
                    self._transcript.added(effect.progress)
                figures = replace(self._figures, bytes_out=self._figures.bytes_out + due)
                cost = self._records.count_sum(effect.progress, figures, self._closed_at)
                self._publish(SumMeasured(cost, self._federation.pace))

    def report(self, report: Report) -> None:
        """Write the line of a sum that was applied, and publish its news."""
        progress, clipping = report.progress, report.clipping
        self._records.append_line(progress, self._figures, self._closed_at, clipping, self._federation.pace)
        self._publish_replaced(progress)
        if clipping is not None:
            if clipping.clipped and not self._clips:
                self._publish(ChangesClipped(progress.round, clipping.clipped, clipping.clip))
            self._clips = clipping.clipped > 0
        for news in news_of_sum(progress, self._federation.rounds_total, self._worst_group_size):
            self._publish(news)

    def _publish_replaced(self, progress: Progress) -> None:
        """Publish, once until a sum has none again, that values were replaced; nobody can say whose they were."""
        key = progress.purpose
        if progress.replaced and key not in self._replacing:
            self._publish(ValuesReplaced(progress.round, key, progress.replaced, progress.replacing))
        (self._replacing.add if progress.replaced else self._replacing.discard)(key)
