"""Every fault that fedfair can name, in one tree.

An error says what is wrong, where, with which value, and what to do about it. The command line prints
`diagnostics()` and ends with the status that `fedfair.process.exit_status` gives each class; `--debug` shows the
traceback. Code raises these and never returns False for a failed check.
"""

from __future__ import annotations


class FedfairError(Exception):
    """A fault that the person at the keyboard, or the peer, can act on.

    Args:
        message: what is wrong, where, and the value that was found.
        remedy: what to do about it; empty where the message says it already.
    """

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def diagnostics(self) -> str:
        """Return the text for a person: the fault and, on its own line, the remedy."""
        return f"{self.message}\n  -> {self.remedy}" if self.remedy else self.message


class PlanError(FedfairError):
    """The plan, `collaborator.yaml` or a site policy cannot be used as it is written."""


class ApprovalError(FedfairError):
    """A site has not approved exactly this plan, or its approval does not verify."""


class DataError(FedfairError):
    """Local data are missing, unreadable or not what the plan declares."""


class SurveyError(DataError):
    """The survey shows a fault in a site's own data, and the site's policy says to stop."""


class IdentityError(FedfairError):
    """A certificate, request, key or binding is missing, malformed, expired, revoked or of somebody else."""


class RenewableIdentityError(IdentityError):
    """A certificate has expired, or its renewal is half installed; a running process waits for a renewed one."""


class CertificateError(FedfairError):
    """A fairness certificate is malformed, was changed, or claims what its own figures do not prove."""


class PassportError(FedfairError):
    """A passport is malformed, was changed, or states what its evidence does not show."""


class StateError(FedfairError):
    """A file that this side keeps its own state in is missing, damaged, or of another plan, version or time."""


class AuditError(FedfairError):
    """An egress record was changed, is not whose it should be, or cannot be written."""


class TrainingError(FedfairError):
    """Local training failed, or produced something that must not leave the site (a NaN or an infinity).

    The message may be sent to the aggregator, so it holds no data; the remedy stays at the site.
    """


class PrivacyError(FedfairError):
    """A promise of differential privacy would not hold, so nothing is released and no epsilon is stated."""


class RefusedActError(FedfairError):
    """What a member of a consortium has done, or a hub has shown, is refused by a named check."""


class UnreachableError(FedfairError):
    """Nobody answers at an address, or not for long enough; the same attempt may work later."""


class ConnectionRefusedByPeerError(FedfairError):
    """The other side understood us and said no; trying again without a change is pointless."""


class MissingExtraError(FedfairError):
    """A library that a command needs is not installed; the remedy names the extra that brings it."""


class AbortedError(FedfairError):
    """The federation stopped before its result: the quorum was lost, or nobody answered any more."""


class StoppedError(FedfairError):
    """Somebody stopped what runs here, and it ended cleanly; no fault, but not the end of the work either.

    Args:
        message: what was stopped.
        remedy: how to continue.
        signal_name: "SIGTERM" or "SIGINT" for a service that was asked to stop; empty for any other command.
    """

    def __init__(self, message: str, remedy: str = "", signal_name: str = "") -> None:
        super().__init__(message, remedy)
        self.signal_name = signal_name


class LocalProtocolError(FedfairError):
    """Our own code broke the order of the protocol: a bug on this side."""


class RemoteProtocolError(FedfairError):
    """The peer broke the protocol: wrong length, wrong round, a duplicate, a value that is not a number."""
