"""`fedfair status`: reads the status that an aggregator or a site serves, and shows it as a table or as JSON."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from fedfair.errors import FedfairError, RemoteProtocolError, UnreachableError
from fedfair.plan.description import percent
from fedfair.plan.losses import NATS
from fedfair.process.terminal import console, host_and_port, say
from fedfair.results.loss_text import loss_or_too_few

DEFAULT_PLACE = "localhost:9464"
SECONDS = 15.0
MAX_BYTES = 16 << 20
"""The longest document that is read: one of a thousand sites has 300 kB."""

Place = Annotated[
    str, typer.Argument(help="HOST:PORT, or https://HOST:PORT where the status is served with a certificate.")
]
Authority = Annotated[
    Path | None,
    typer.Option("--authority", help="PEM file of who has signed the certificate, instead of the system's own."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the whole status as JSON.")]


def status_command(address: Place = DEFAULT_PLACE, authority: Authority = None, as_json: AsJson = False) -> None:
    """Show who is connected, who is waited for, and the round of a run that serves its status."""
    document = _read(address, authority)
    if as_json:
        console.print_json(json.dumps(document))
        return
    try:
        lines, sites, notes = list(_lines(document)), _sites(document), _notes(document)
    except (KeyError, TypeError, AttributeError) as fault:
        raise RemoteProtocolError(
            f"the status of {address} lacks {fault}", "is it another version of fedfair?"
        ) from fault
    for line in lines:
        say(line)
    console.print(sites)
    for line in notes:
        say(line)


def _read(address: str, authority: Path | None) -> Mapping[str, Any]:
    scheme, _, rest = address.rpartition("://")
    if scheme not in {"", "http", "https"}:
        raise typer.BadParameter(f"{address!r} is not HOST:PORT", param_hint="ADDRESS")
    host, port = host_and_port(rest.rstrip("/"), "ADDRESS", 1)
    if scheme == "https" or authority is not None:
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            host, port, timeout=SECONDS, context=_context(authority)
        )
    else:
        connection = http.client.HTTPConnection(host, port, timeout=SECONDS)
    try:
        connection.request("GET", "/healthz")
        answer = connection.getresponse()
        raw = answer.read(MAX_BYTES)
    except (OSError, http.client.HTTPException) as fault:
        words = getattr(fault, "strerror", None) or str(fault) or type(fault).__name__
        raise UnreachableError(
            f"no status is served at {address}: {words}",
            "start the aggregator or the site with --status HOST:PORT, and name the same place here",
        ) from fault
    finally:
        connection.close()
    if answer.status != http.client.OK:
        raise RemoteProtocolError(f"{address} answers with status {answer.status} {answer.reason}")
    try:
        document = json.loads(raw)
    except ValueError as fault:
        raise RemoteProtocolError(f"what {address} answers is no JSON") from fault
    if not isinstance(document, dict) or document.get("format") != "fedfair/status/1":
        raise RemoteProtocolError(f"what {address} answers is no status of fedfair")
    return document


def _context(authority: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=authority)
    except OSError as fault:
        raise FedfairError(f"{authority} cannot be used: {fault.strerror or fault}") from fault


def _lines(document: Mapping[str, Any]) -> Iterator[str]:
    total = document["rounds_total"]
    rounds = f"round {document['rounds_done']} of {total}, " if total else ""
    yield f"{document['federation']}, {document['name']}: {rounds}{document['state']}"
    rate, age = document["rounds_per_second"], document["last_round_age_seconds"]
    if age is not None:
        pace = "" if rate is None else f"{rate:.3g} rounds a second; "
        yield f"{pace}the last round ended {age:.1f} s ago"
    summed = document["sum"]
    if summed["purpose"]:
        yield f"{summed['purpose']} sum of round {summed['round']} waits for {summed['phase']}"
    if document["awaited"]:
        until = document["awaited_until"]
        limit = "" if until is None else f" until {until}"
        yield document["waiting"] or f"waiting for {', '.join(document['awaited'])}{limit}"
    if document["median_answer_seconds"] is not None:
        yield f"the median site answers in {document['median_answer_seconds']:.3g} s"
    if document["evaluation"] is not None:
        group = f"worst {percent(document['worst_group_size'])}"
        # A process of an earlier version states no unit: it has losses in nats alone.
        unit = document.get("loss_unit", NATS)
        for name, split in document["evaluation"]["splits"].items():
            overall, worst = loss_or_too_few(split["mean"]), loss_or_too_few(split["worst"])
            place = f"after round {document['evaluation']['round']}, {name}"
            yield f"{place}: everybody {overall}, {group} {worst} {unit}"
    if document["certificate_days_left"] is not None:
        yield f"the certificate ends in {document['certificate_days_left']} days"


def _sites(document: Mapping[str, Any]) -> Table:
    columns = "site", "connected", "answers in", "left behind since", "awaited since", "awaited in all", "withdrew"
    table = Table(*columns, box=None)
    for name, site in document["sites"].items():
        table.add_row(
            Text(name),
            "yes" if site["connected"] else "no",
            "" if site["answer_seconds"] is None else f"{site['answer_seconds']:.3g} s",
            Text(site["left_behind_since"] or ""),
            Text(site["awaited_since"] or ""),
            f"{site['awaited_seconds']:.1f} s",
            Text(site["withdrew"] or ""),
        )
    return table


def _notes(document: Mapping[str, Any]) -> list[str]:
    return [f"{note['time']} {note['words']}" for note in document["notes"][-5:]]
