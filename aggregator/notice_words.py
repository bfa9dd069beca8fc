"""The sentence of each notice: one text for the terminal, the log and the notes."""

from __future__ import annotations

from typing import assert_never

from aggregator.notices import (
    AbsentSitesAwaited,
    AnswerUnawaited,
    AttemptLost,
    CertificateEnding,
    CertificateRenewed,
    CertificateUnusable,
    ChangesClipped,
    EarlierRunKept,
    EndMissed,
    EntryRefused,
    EvaluationOmitted,
    IdentityWarned,
    InvitationDeclined,
    JournalBehind,
    LieSuspected,
    Notice,
    OlderTrustKept,
    PortOpened,
    ProtectionStated,
    RevocationListChanged,
    RunContinued,
    SentAway,
    SiteCaughtUp,
    SiteLeftBehind,
    SitesAwaited,
    SiteWithdrew,
    StatusServed,
    StopBegun,
    StreamEnded,
    StreamOpened,
    ValuesReplaced,
)
from aggregator.waiting import waiting_words
from fedfair.aggregation.masking_terms import IN_THE_CLEAR
from fedfair.tracking.failure import TrackerFailed, tracker_words


def notice_words(notice: Notice) -> str:  # noqa: C901, PLR0911, PLR0912 - one case per notice
    """Return what the operator reads, in one line."""
    match notice:
        case ProtectionStated(guarantee):
            return f"secure aggregation: {guarantee}" if guarantee else IN_THE_CLEAR
        case IdentityWarned(reason):
            return reason
        case EarlierRunKept(folder):
            return f"the run goes on from a finished one, whose files are in {folder} now"
        case RunContinued(run_id, rounds_done):
            return f"continuing run {run_id[:8]} after round {rounds_done}, as recorded in the journal"
        case PortOpened(port, collaborators):
            return f"listening on port {port} for {', '.join(collaborators)}"
        case StatusServed(address):
            return f"the status of the run is at {address}"
        case EntryRefused(who, reason):
            return f"{who} was refused: {reason}"
        case InvitationDeclined(who, reason):
            return f"{who} refuses to take part: {reason}"
        case StreamOpened(who, replaces):
            if not replaces:
                return f"{who} connected"
            again = "said again and again, it means that two machines use its identity"
            return f"{who} returned on a new stream in place of its older one; {again}"
        case StreamEnded(who):
            return f"{who} disconnected"
        case SitesAwaited(facts, until, told_at):
            return waiting_words(facts, until, told_at)
        case AnswerUnawaited(who, purpose, number, reason):
            return f"{who} has been dropped from the {purpose.value} sum of round {number}: {reason}"
        case SiteLeftBehind(who, purpose, number, seconds, median):
            asked = f"{who} has not answered the {purpose.value} sum of round {number} within {seconds:.1f} s"
            return f"{asked}{_beside(median)}; the sum goes on without it, and it is asked again later"
        case SiteCaughtUp(who, seconds, median):
            return f"{who} has answered after {seconds:.1f} s{_beside(median)}, too late for that sum"
        case LieSuspected(who, reason):
            return f"{who} may be lying, or those it contradicts: {reason}"
        case SentAway(who, reason):
            return f"{who} is disconnected: {reason}"
        case SiteWithdrew(who, rounds_done, reason):
            return f"{who} withdraws from the federation after round {rounds_done}: {reason}"
        case AttemptLost(purpose, number, attempt, reason):
            return f"{purpose.value} sum of round {number}, attempt {attempt}, is lost: {reason}"
        case EvaluationOmitted(number, reason):
            return f"the evaluation of round {number} is omitted: {reason}"
        case JournalBehind(leads, rounds):
            said = ", ".join(f"{who} by {lead} rounds" for who, lead in leads.items())
            belief = f"{rounds} rounds are accepted" if rounds else "too few report this, so the run continues"
            return f"sites report rounds beyond the journal: {said}; {belief}"
        case ChangesClipped(number, clipped, clip):
            return (
                f"round {number}: {clipped} changes were larger than the clip of "
                f"{clip:g} and were clipped to it; the metrics count later ones"
            )
        case ValuesReplaced(number, purpose, values, sites):
            return (
                f"round {number}: {values} values of {sites} site(s) in the "
                f"{purpose.value} sum could not be summed (NaN, infinite or beyond their bound) and were "
                "replaced; each of these sites has a line about it in its own log; the metrics count later ones "
                "-> lower training.learning_rate, or have the sites look for extreme values in their data"
            )
        case OlderTrustKept(reason):
            return f"open streams are checked against the earlier revocation list: {reason}"
        case RevocationListChanged(number, revoked):
            return (
                f"revocation list {number} is in force, with {revoked} certificate(s); connected sites are sent it"
            )
        case CertificateEnding(ending):
            return ending.words
        case CertificateRenewed(until):
            return f"new connections are shown the renewed certificate, good until {until:%Y-%m-%d %H:%M} UTC"
        case CertificateUnusable(reason):
            return f"the certificate on the disk cannot be used, so the present one stays: {reason}"
        case StopBegun(signal_name):
            return f"{signal_name}: telling the collaborators and recording the run; once more to stop at once"
        case AbsentSitesAwaited(seconds, names):
            return f"the run is over; listening {seconds:.0f} s longer to tell {', '.join(names)}, who are away"
        case EndMissed(participant):
            return (
                f"{participant} has heard that the run is over, but its own copy lacks the last sums -> send it "
                "save/last.safetensors"
            )
        case TrackerFailed():
            return tracker_words(notice)
    assert_never(notice)


def _beside(median: float | None) -> str:
    """Return the median in words, to stand behind one site's seconds."""
    return "" if median is None else f" (the median of the sites is {median:.2g} s)"
