"""`fedfair audit`: what left an institution, whether the record of it is whole, and proofs of a run."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.table import Table
from rich.text import Text

from fedfair.cli.run_proof import check_proof, prove
from fedfair.errors import AuditError
from fedfair.process.terminal import console, error_console, say, warn

if TYPE_CHECKING:
    from fedfair.audit.reader import RecordReader
    from fedfair.audit.summary import RecordComparison
    from fedfair.plan.schema import Plan

app = typer.Typer(no_args_is_help=True)
app.command()(prove)
app.command()(check_proof)

RECORD = typer.Argument(
    ...,
    help="A record: egress/NAME.jsonl of a site, received/NAME.jsonl of an aggregator. Its earlier files, "
    "NAME.jsonl.000001 and so on, are read with it.",
)
AS_JSON = typer.Option(False, "--json", help="Print JSON.")
_CHECKPOINT = re.compile(r"([1-9][0-9]{0,18}):([0-9a-f]{64})")


@app.command()
def show(
    record: Path = RECORD,
    by_round: bool = typer.Option(False, "--by-round", help="Show one line for each sum instead of each purpose."),
    as_json: bool = AS_JSON,
) -> None:
    """Show what was sent, by purpose and kind, with lengths. `verify` checks who signed it."""
    from fedfair.audit.summary import explanations, gaps

    found = _read(record, by_sum=True)
    if as_json:
        groups = [{**asdict(group), **asdict(tally)} for group, tally in found.groups.items()]
        console.print_json(json.dumps({**_facts(found), "groups": groups}))
        return
    console.print(_table(found, by_round=by_round))
    for word, explanation in explanations(found.groups):
        console.print(Text.assemble((f"{word}: ", "bold"), explanation), soft_wrap=True)
    for gap in gaps(found):
        warn(gap)


@app.command()
def verify(
    record: Path = RECORD,
    mirror: list[Path] = typer.Option(
        [], "--mirror", help="The aggregator's mirror of this record. Repeatable, one for each run."
    ),
    key: str = typer.Option(
        None, "--key", help="The keeper's public key, or a file that holds it.",
        show_default="from the plan's roster, or from cert/NAME/signing.pub",
    ),
    mirror_key: str = typer.Option(
        None, "--mirror-key", help="The aggregator's public key, or a file that holds it.",
        show_default="from cert/aggregator/signing.pub",
    ),
    plan_file: Path = typer.Option(None, "--plan", "-p", help="The plan whose roster has the key."),
    cert_folder: Path = typer.Option(Path("cert"), "--cert-folder", help="Folder of the workspace's keys."),
    checkpoint: str = typer.Option(
        None, "--checkpoint", help="ENTRY:CHAIN from an earlier `verify`, which the record must still have."
    ),
    head: Path = typer.Option(
        None, "--head", help="The site's rollback guard, which holds the last entry of its record.",
        show_default="state/NAME.egress-head in the folder above that of the record",
    ),
    as_json: bool = AS_JSON,
    quiet: bool = typer.Option(False, "--quiet", "-q", help="Print warnings only."),
) -> None:  # fmt: skip
    """Verify a record offline: its chain, signatures and totals; with --mirror, also what arrived."""
    from fedfair.audit.summary import checkpoint as checkpoint_of
    from fedfair.audit.summary import comparison, findings, gaps
    from fedfair.plan.loading import load_plan

    plan = None if plan_file is None else load_plan(plan_file)
    found = _read(record, _parsed(checkpoint), _noted_end(record, head), by_message=bool(mirror))
    _check_key(found, record, key, plan, cert_folder)
    compared = _compared(found, record, mirror, mirror_key, cert_folder) if mirror else None
    foreign = 0 if compared is None else compared.foreign.messages
    if as_json:
        told = None if compared is None else asdict(compared)
        console.print_json(json.dumps({"ok": not foreign, **_facts(found), "mirror": told}))
    elif not quiet:
        lines = (*findings(found), *(comparison(compared) if compared is not None else ()))
        for line in (*lines, f"checkpoint: {checkpoint_of(found)}"):
            say(line)
    for gap in gaps(found):
        warn(gap)
    if foreign:
        raise AuditError(
            f"{foreign} messages arrived in the name of {found.names[1]} that {record} does not have",
            "the record was shortened or rewritten, or somebody else used the site's keys: keep both files, "
            "and have the certificate revoked until you know",
        )


def _noted_end(record: Path, given: Path | None) -> tuple[int, bytes] | None:
    """Return the entry that a record must still have, as its site has noted; None where nothing is noted."""
    from fedfair.audit.head import head_path, present_boot, read_head

    place = record.resolve()
    noted = read_head(given or head_path(place.parent.parent / "state", record.stem))
    if noted is None and given is not None:
        raise AuditError(f"there is no note {given}", "give state/NAME.egress-head of the site")
    # A note that was given by hand may lie beside a copy of the record, on another machine.
    if noted is not None and (given is not None or noted.record == str(place)):
        return noted.expected(present_boot())
    return None


def _parsed(checkpoint: str | None) -> tuple[int, bytes] | None:
    if checkpoint is None:
        return None
    match = _CHECKPOINT.fullmatch(checkpoint)
    if match is None:
        raise typer.BadParameter(f"{checkpoint!r} is not ENTRY:CHAIN", param_hint="--checkpoint")
    return int(match[1]), bytes.fromhex(match[2])


def _read(
    path: Path, *checkpoints: tuple[int, bytes] | None, by_sum: bool = False, by_message: bool = False
) -> RecordReader:
    """Read a record, all of its files."""
    from fedfair.audit.reader import RecordReader
    from fedfair.audit.segments import read_record

    found = RecordReader(*checkpoints, by_sum=by_sum, by_message=by_message)
    try:
        with error_console.status(Text(f"reading {path}")):
            read_record(path, found)
        _ = found.names
    except AuditError as fault:
        raise AuditError(f"{path}: {fault.message}", fault.remedy) from fault
    return found


def _check_key(found: RecordReader, path: Path, given: str | None, plan: Plan | None, cert_folder: Path) -> None:
    """Refuse a record that its keeper has not signed, or where nothing says which key the keeper has."""
    from fedfair.identity.known_keys import known_key

    keeper, stated = found.names[2], _stated_key(found)
    key = known_key(keeper, given, plan, cert_folder)
    if key is None:
        raise AuditError(
            f"this folder does not tell which key {keeper} has; {path} claims {stated}",
            f"give the plan whose roster has it with --plan, or ask {keeper} and give it with --key",
        )
    if key != stated:
        raise AuditError(
            f"{path} is signed with {stated}, the key of {keeper} is {key}",
            "somebody else may have written it; if the site has changed its key, give the older one with --key",
        )


def _compared(
    found: RecordReader, path: Path, mirrors: list[Path], mirror_key: str | None, cert_folder: Path
) -> RecordComparison:
    from fedfair.audit.summary import compare
    from fedfair.identity.known_keys import known_key
    from fedfair.ids import AGGREGATOR

    read = [_read(mirror, by_message=True) for mirror in mirrors]
    try:
        compared = compare(found, read)
    except AuditError as fault:
        raise AuditError(f"{path} and {', '.join(map(str, mirrors))}: {fault.message}", fault.remedy) from fault
    if known_key(AGGREGATOR, mirror_key, None, cert_folder) is None:
        warn(
            "this folder does not tell which key the aggregator has: "
            "who signed the mirror was NOT checked (--mirror-key)"
        )
        return compared
    for one, mirror in zip(read, mirrors, strict=True):
        _check_key(one, mirror, mirror_key, None, cert_folder)
    return compared


def _stated_key(found: RecordReader) -> str:
    return "" if found.opened is None else found.opened.key


def _facts(found: RecordReader) -> dict[str, object]:
    from fedfair.audit.summary import checkpoint

    federation, participant, keeper = found.names
    return {
        "federation": federation,
        "participant": participant,
        "keeper": keeper,
        "key": _stated_key(found),
        "entries": found.entries,
        "messages": found.total.messages,
        "bytes": found.total.bytes,
        "signatures": found.signatures,
        "unsigned_entries": found.unsigned,
        "closed": found.closed,
        "interruptions": [asdict(torn) for torn in found.torn],
        "unfinished_bytes": len(found.tail),
        "checkpoint": checkpoint(found),
    }


def _table(found: RecordReader, *, by_round: bool) -> Table:
    from fedfair.audit.summary import rows

    federation, participant, _ = found.names
    table = Table(title=f"What {participant} of '{federation}' has sent", title_justify="left")
    for heading in ("for", "rounds", "what"):
        table.add_column(heading, no_wrap=True)
    for heading in ("messages", "bytes"):
        table.add_column(heading, justify="right", no_wrap=True)
    for plan in dict.fromkeys(group.plan for group in found.groups):
        table.add_section()
        table.add_row("plan", "", f"{plan[:15]}…", style="dim")
        of_plan = {group: tally for group, tally in found.groups.items() if group.plan == plan}
        for row in rows(of_plan, by_round=by_round):
            counted = (f"{row.total.messages:,}", f"{row.total.bytes:,}")
            table.add_row(row.purpose, row.rounds, row.what, *counted)
    table.add_section()
    table.add_row("everything", "", "", f"{found.total.messages:,}", f"{found.total.bytes:,}", style="bold")
    return table
