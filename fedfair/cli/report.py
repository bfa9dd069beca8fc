"""`fedfair report`: the result of one or more runs as tables, and as one HTML page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import typer

from fedfair.errors import CertificateError, DataError
from fedfair.extras import install_command
from fedfair.process.terminal import console, say, tell
from fedfair.report.board_summary import Language, board_summary
from fedfair.report.figures import can_draw
from fedfair.report.html import PageSection, check_place
from fedfair.report.run_page import run_page, subject
from fedfair.report.sentences import labelled
from fedfair.report.shown import shown
from fedfair.report.statistics_section import statistics_of, statistics_page, statistics_table
from fedfair.report.tables import by_group_size, comparison
from fedfair.results.document import ResultDocument, to_json
from fedfair.results.json_schema import result_schema
from fedfair.results.reading import read_result
from fedfair.results.slices import slice_sentences
from fedfair.store.atomic_file import write_whole

COMPARED_SIZES = (0.1, 0.3)
CERTIFICATE = "certificate.json"
SCHEMA = Path("schema")
"""Asks for the JSON Schema, unless there is a file of this name."""


def report_command(
    results: list[Path] = typer.Argument(
        None,
        help="Result files; several are compared. The word schema prints their JSON Schema.",
        show_default="result.json",
    ),
    output: Path = typer.Option(
        None,
        "--output",
        "-o",
        help="File for the page (HTML).",
        show_default="report.html beside the first result",
    ),
    labels: list[str] = typer.Option(
        None,
        "--label",
        "-l",
        help="Name of a result beside the others; once for each, in their order.",
        show_default="their files",
    ),
    summary: Path = typer.Option(
        None,
        "--summary",
        help="File for one page in plain words about the first result, for an ethics board.",
    ),
    language: Language = typer.Option("en", "--language", help="Language of the summary."),
    as_json: bool = typer.Option(
        False, "--json", help="Print the result as JSON. Without --output, no page is written."
    ),
) -> None:
    """Show mean and worst-group loss of a result."""
    places = results or [Path("result.json")]
    if places == [SCHEMA] and not SCHEMA.is_file():
        console.print_json(json.dumps(result_schema()))
        return
    documents = {str(path): read_result(path) for path in places}
    if statistics_of(documents):
        _report_statistics(documents, output, as_json=as_json, summary=summary)
    else:
        _report_models(documents, output, labels or (), summary, language, as_json=as_json)


def _report_models(
    documents: Mapping[str, ResultDocument],
    output: Path | None,
    labels: Sequence[str],
    summary: Path | None,
    language: Language,
    *,
    as_json: bool,
) -> None:
    """Show results that are of models; arguments as of the command."""
    place, reported = next(iter(documents)), labelled(documents, labels)
    if summary is not None:
        check_place(summary)
        write_whole(summary, board_summary(documents[place], place, language))
    page = output or (None if as_json else Path(place).with_name("report.html"))
    if page is not None:
        check_place(page)
        write_whole(page, run_page(documents, _certificates(documents), labels))
        if not can_draw():
            tell(f"{page} has no charts: {install_command('plots')}")
    if as_json:
        console.print_json(json.dumps([shown(document) for document in documents.values()]))
        return
    if len(documents) > 1:
        console.print(comparison({each.label: each.document for each in reported}, COMPARED_SIZES))
    for each in reported:
        document = each.document
        console.print(by_group_size(document, each.label))
        verdict = () if document.verdict is None else document.verdict.sentences
        for sentence in (*slice_sentences(document.slices), *verdict):
            say(sentence)
    say(f"The page: {page}")
    if summary is not None:
        say(f"The summary: {summary}")


def _report_statistics(
    documents: Mapping[str, ResultDocument], output: Path | None, *, as_json: bool, summary: Path | None
) -> None:
    """Show results that are of statistics."""
    if summary is not None:
        raise DataError("--summary is about a model, and this result holds statistics", "omit --summary")
    page = output or (None if as_json else Path(next(iter(documents))).with_name("report.html"))
    if page is not None:
        check_place(page)
        write_whole(page, statistics_page(documents))
    if as_json:
        console.print_json(json.dumps([to_json(document) for document in documents.values()]))
        return
    for place, found in statistics_of(documents).items():
        console.print(statistics_table(found, place))
    say(f"The page: {page}")


def _certificates(documents: Mapping[str, ResultDocument]) -> list[PageSection]:
    """Return what is certified about the first result, where a certificate lies beside it."""
    from fedfair.certificate.check import check_figures
    from fedfair.certificate.document import parse_certificate
    from fedfair.certificate.excerpt import check_result, excerpt

    place, document = subject(documents)
    file = Path(place).with_name(CERTIFICATE)
    if not file.is_file():
        return []
    try:
        certificate = parse_certificate(file.read_bytes(), str(file))
        check_figures(certificate)
        check_result(certificate, document, str(file))
    except CertificateError as fault:
        # An older certificate is often left beside a newer result, which is worth seeing all the same.
        words = f"the page leaves {file} out: {fault.message}"
        tell(words, "yellow")
        return []
    return [excerpt(certificate, str(file))]
