"""The table of statements: one row for each, in the order of a passport; nothing outside it names a room."""

from __future__ import annotations

from fedfair.passport.statement import StatementRoom
from fedfair.passport.statements import (
    accuracy,
    agreement,
    calibration,
    certificate,
    data,
    groups,
    model,
    privacy,
    purpose,
    release,
    sets,
    software,
    transcript,
    withdrawals,
)

STATEMENTS: tuple[StatementRoom, ...] = (
    purpose.ROOM,
    model.ROOM,
    agreement.ROOM,
    data.ROOM,
    accuracy.ROOM,
    groups.ROOM,
    certificate.ROOM,
    calibration.ROOM,
    sets.ROOM,
    release.ROOM,
    privacy.ROOM,
    withdrawals.ROOM,
    transcript.ROOM,
    software.ROOM,
)
"""Every statement."""
