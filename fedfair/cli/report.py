"""`fedfair report`: the result of one or more runs as tables, and as one HTML page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import typer

from fedfair.report.document import ResultDocument, read_result
from fedfair.report.html import Section, check_place
from fedfair.report.run_page import run_page, subject
from fedfair.report.tables import by_group_size, comparison
from fedfair.report.terminal import console
from fedfair.whole_file import write_whole

COMPARED_SIZES = (0.1, 0.3)
CERTIFICATE = "certificate.json"


def report_command(
    results: list[Path] = typer.Argument(
        None, help="Result files; several are compared.", show_default="result.json"
    ),
    html: Path = typer.Option(
        None, "--html", help="Where the page goes.", show_default="report.html beside the first result"
    ),
    as_json: bool = typer.Option(
        False, "--json", help="Print what is shown as JSON; writes a page only where --html says."
    ),
) -> None:
    """Show who is served how well: mean loss of everybody and of the worst groups."""
    places = results or [Path("result.json")]
    documents = {str(path): read_result(path) for path in places}
    page = html or (None if as_json else places[0].with_name("report.html"))
    if page is not None:
        check_place(page)
        write_whole(page, run_page(documents, _certificates(documents)))
    if as_json:
        console.print_json(json.dumps([document.model_dump(mode="json") for document in documents.values()]))
        return
    if len(documents) > 1:
        console.print(comparison(list(documents.values()), COMPARED_SIZES))
    for document in documents.values():
        console.print(by_group_size(document))
    console.print(f"The page: {page}", soft_wrap=True, markup=False)


def _certificates(documents: Mapping[str, ResultDocument]) -> list[Section]:
    """Return what is certified about the first result, where a certificate lies beside it."""
    from fedfair.certificate.check import check_figures
    from fedfair.certificate.document import parse_certificate
    from fedfair.certificate.excerpt import check_result, excerpt

    place, document = subject(documents)
    file = Path(place).with_name(CERTIFICATE)
    if not file.is_file():
        return []
    certificate = parse_certificate(file.read_bytes(), str(file))
    check_figures(certificate)
    check_result(certificate, document, str(file))
    return [excerpt(certificate, str(file))]
