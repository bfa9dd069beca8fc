"""Decides the exit status of a command, in one place.

`docs/reference/commands.md` has the table.

A service that was asked to stop before its run had ended has a status of its own: a service manager takes it for
no failure, and a cluster that moves the service elsewhere must not take it for the end of the work. Every other
command that is interrupted has not done its work and says so. What is refused does not work better the second
time, so it has a status of its own, the same as wrong usage.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType

from fedfair import errors
from fedfair.errors import FedfairError, StoppedError


class ExitStatus(IntEnum):
    """The exit status of a command."""

    DONE = 0
    """The work was done."""
    FAULT = 1
    """Anything that has no status of its own."""
    REFUSED = 2
    """A plan, a file, a release or the command line itself was refused; somebody has to change it."""
    ABORTED = 3
    """A run ended before its result."""
    STOPPED = 4
    """A service was asked to stop (SIGTERM) before its run had ended, and did so cleanly."""
    INTERRUPTED = 130
    """Ctrl-C; or any signal to a command that is no service, or a second one to a service."""


STATUS: Mapping[type[FedfairError], ExitStatus] = MappingProxyType(
    {
        FedfairError: ExitStatus.FAULT,
        errors.PlanError: ExitStatus.REFUSED,
        errors.ApprovalError: ExitStatus.REFUSED,
        errors.DataError: ExitStatus.REFUSED,
        errors.SurveyError: ExitStatus.REFUSED,
        errors.IdentityError: ExitStatus.REFUSED,
        errors.RenewableIdentityError: ExitStatus.REFUSED,
        errors.CertificateError: ExitStatus.REFUSED,
        errors.PassportError: ExitStatus.REFUSED,
        errors.StateError: ExitStatus.REFUSED,
        errors.AuditError: ExitStatus.REFUSED,
        errors.TrainingError: ExitStatus.FAULT,
        errors.PrivacyError: ExitStatus.REFUSED,
        errors.RefusedActError: ExitStatus.REFUSED,
        errors.UnreachableError: ExitStatus.FAULT,
        errors.ConnectionRefusedByPeerError: ExitStatus.REFUSED,
        errors.MissingExtraError: ExitStatus.REFUSED,
        errors.AbortedError: ExitStatus.ABORTED,
        StoppedError: ExitStatus.INTERRUPTED,
        errors.LocalProtocolError: ExitStatus.FAULT,
        errors.RemoteProtocolError: ExitStatus.FAULT,
    }
)
"""By kind of fault; a class that is derived from one of these has its status."""


_NO_USE = (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError)
"""Errors of the system about a file that the user named wrongly."""


def exit_status(fault: FedfairError | OSError) -> ExitStatus:
    """Return the status that a command ends with because of a fault."""
    if isinstance(fault, OSError):
        return ExitStatus.REFUSED if isinstance(fault, _NO_USE) else ExitStatus.FAULT
    if isinstance(fault, StoppedError) and fault.signal_name == signal.SIGTERM.name:
        return ExitStatus.STOPPED
    return next(STATUS[kind] for kind in type(fault).__mro__ if kind in STATUS)
