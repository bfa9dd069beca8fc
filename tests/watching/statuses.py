"""The status of a run that has just begun, with which the tests of statuses start."""

from datetime import UTC, datetime

from fedfair.ids import ParticipantId
from fedfair.watching.run_status import RunStatus

NOON = datetime(2031, 5, 4, 12, tzinfo=UTC)
A, B = ParticipantId("clinic-a"), ParticipantId("clinic-b")
START = RunStatus("aggregator", "aggregator", "heart", 20, 0.1, (A, B), NOON)
