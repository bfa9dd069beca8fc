"""`fedfair data withdraw` and its like: persons withdraw at a site. Identifiers stay on this terminal."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from fedfair.process.passphrase import FILE_HELP
from fedfair.process.terminal import console, say

Config = Annotated[Path, typer.Option("--config", "-c", help="This site's own configuration.")]
PlanFile = Annotated[Path, typer.Option("--plan", "-p", help="The plan.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

DEFAULT_CONFIG = Path("collaborator.yaml")
DEFAULT_PLAN = Path("plan/plan.yaml")


def withdraw(
    config: Config = DEFAULT_CONFIG,
    plan: PlanFile = DEFAULT_PLAN,
    ids: Annotated[
        Path | None, typer.Option("--ids", help="CSV file of identifiers; line 1 names the column.")
    ] = None,
    one: Annotated[list[str] | None, typer.Option("--id", help="One identifier; may be repeated.")] = None,
    reference: Annotated[str, typer.Option("--reference", help="How this site finds the request.")] = "",
    even_if_unknown: Annotated[
        bool, typer.Option("--even-if-unknown", help="Record identifiers that no record here has, too.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Record that persons withdraw: from the next start on, none of their records counts."""
    from collaborator.withdrawn.recording import identifiers_in, record_withdrawal
    from fedfair.policy.site_config import load_site_config

    column = load_site_config(config).data.record_id
    listed = () if ids is None else identifiers_in(ids, column)
    now = datetime.now(UTC)
    given = (*(one or ()), *listed)
    done = record_withdrawal(config, plan, given, reference, now, even_if_unknown=even_if_unknown)
    if as_json:
        console.print_json(json.dumps({"format": "fedfair/data-withdraw/1", **asdict(done)}))
        return
    say(f"{done.recorded} persons withdrawn, {done.known} had withdrawn before; {done.total} at this site in all")
    for identifier in done.unknown:
        say(f"no record here has the identifier {identifier!r}; it is recorded", "yellow")
    say("From its next start on this site counts none of their records. Nothing was sent.")


def lineage(
    one: Annotated[str, typer.Option("--id", help="One identifier.")],
    config: Config = DEFAULT_CONFIG,
    as_json: AsJson = False,
) -> None:
    """Show in which runs a person's records counted at this site, and which models follow from these."""
    from collaborator.withdrawn.tracing import trace_person

    found = trace_person(config, one)
    if as_json:
        console.print_json(json.dumps({"format": "fedfair/data-lineage/1", **asdict(found)}))
        return
    say(f"withdrawn on {found.withdrawn[:10]}" if found.withdrawn else "not withdrawn")
    if not found.runs:
        say("in no run that this site has noted")
    for run in found.runs:
        until = "" if run.until_round is None else f" until round {run.until_round}"
        counted = f"counted after round {run.after_round}{until} ({', '.join(run.splits)})"
        begun = f"begins with {', '.join(run.through)}"
        say(f"run {run.run} of plan {run.plan}: {counted if run.splits else begun}")
        for model in run.models:
            say(f"  {model.file}: {model.weights}, round {model.round}")


def withdrawal_notice(
    output: Annotated[Path, typer.Option("--output", "-o", help="Write the notice here.")],
    config: Config = DEFAULT_CONFIG,
    plan: PlanFile = DEFAULT_PLAN,
    passphrase_file: Annotated[Path | None, typer.Option("--passphrase-file", help=FILE_HELP)] = None,
) -> None:
    """Write this site's signed notice for the lead: which runs are affected. It tells neither who nor how many."""
    from collaborator.withdrawn.notifying import withdrawal_notice as noticed
    from fedfair.identity.store import load_signing_key
    from fedfair.policy.site_config import load_site_config
    from fedfair.process.passphrase import own_passphrase
    from fedfair.store.atomic_file import replace_file
    from fedfair.store.disk import writing

    notice = noticed(config, plan, datetime.now(UTC).date())
    folder, name = Path(load_site_config(config).cert_folder), notice.participant
    signed = notice.signed(load_signing_key(folder, name, own_passphrase(folder, name, passphrase_file)))
    with writing(output):
        replace_file(output, [signed])
    for run in notice.runs:
        say(f"run {run.run} of plan {run.plan}: affected" + (", run again since" if run.superseded_by else ""))
    say(f"written: {output}, {len(notice.runs)} affected runs; the lead gives it to `fedfair plan rerun`")
