"""Words for the operator: whom the run waits for, until when, and what happens then.

One text for the terminal, the log and the notes. `fedfair.rounds` decides the facts, the driver knows the time.
"""

from __future__ import annotations

from datetime import UTC, datetime

from fedfair.rounds.events import AfterWaiting, Waiting


def waiting_words(waiting: Waiting, until: datetime, now: datetime) -> str:
    """Return the sentences; times are in UTC and say so, with the date where it is another day than `now`.

    Args:
        waiting: the facts.
        until: when the first of its deadlines passes, with a time zone.
        now: the time, with a time zone.
    """
    there, stated = waiting.present, now.astimezone(UTC)
    attendance = f"{there} of {waiting.total} sites {'is' if there == 1 else 'are'} here"
    if there < waiting.needed:
        attendance += f", {waiting.needed} are needed"
    end = until.astimezone(UTC)
    clock = f"{end:%H:%M:%S} UTC" if end.date() == stated.date() else f"{end:%Y-%m-%d %H:%M:%S} UTC"
    names = ", ".join(waiting.missing)
    return f"{attendance}.{_who_alone(waiting)} Waiting for {names} until {clock}, then {_then(waiting)}."


def _sum(waiting: Waiting) -> str:
    request = waiting.request
    return "next sum" if request is None else f"{request.purpose.value} sum of round {request.round}"


def _who_alone(waiting: Waiting) -> str:
    names = ", ".join(waiting.only)
    if not waiting.only:
        return ""
    if waiting.reopens:
        who = f"only {names} together" if waiting.needed == len(waiting.only) else names
        return f" The {_sum(waiting)} was interrupted, and {who} can open it from what they have sent."
    return (
        f" Only {names} can repeat the {_sum(waiting)}, because they have helped to open it; for others, each of "
        "them would have to raise policy.max_reopened_sums."
    )


def _then(waiting: Waiting) -> str:
    match waiting.then:
        case AfterWaiting.START_WITHOUT:
            return f"starting without {'it' if len(waiting.missing) == 1 else 'them'}"
        case AfterWaiting.SKIP:
            return f"omitting the {_sum(waiting)}"
        case AfterWaiting.REPEAT:
            return f"restarting the {_sum(waiting)} with those who are here"
        case AfterWaiting.END:
            return "ending the run, which resumes when the aggregator is restarted"
