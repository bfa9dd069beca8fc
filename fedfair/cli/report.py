"""`fedfair report`: the result of one or more runs as tables."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from fedfair.report.document import read_result
from fedfair.report.tables import by_group_size, comparison
from fedfair.report.terminal import console

COMPARED_SIZES = (0.1, 0.3)


def report_command(
    results: list[Path] = typer.Argument(
        None, help="Result files; several are compared.", show_default="result.json"
    ),
    as_json: bool = typer.Option(False, "--json", help="Print what the tables show as JSON."),
) -> None:
    """Show who is served how well: mean loss of everybody and of the worst groups."""
    documents = [read_result(path) for path in results or [Path("result.json")]]
    if as_json:
        console.print_json(json.dumps([document.model_dump(mode="json") for document in documents]))
        return
    if len(documents) > 1:
        console.print(comparison(documents, COMPARED_SIZES))
    for document in documents:
        console.print(by_group_size(document))
