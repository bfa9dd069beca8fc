"""What a certificate says on the page of its run, and that it says nothing there about another one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fedfair.certificate.document import Certificate, to_text
from fedfair.certificate.excerpt import check_result, excerpt
from fedfair.certificate.sentences import main_statement, population_sentence, sample_sentence
from fedfair.cli.commands import app
from fedfair.errors import CertificateError
from fedfair.results.document import ResultDocument
from fedfair.results.reading import parse_result
from tests.certificate.certificate_makers import PLAN_DIGEST, make_certificate, make_sealed, some_losses
from tests.result_files import complete


def result(certificate: Certificate, **changed: object) -> dict[str, Any]:
    """Return the result of the run that a certificate is about."""
    made = complete() | {"plan_digest": PLAN_DIGEST}
    test = made["train"] | {"n": certificate.n, "mean": certificate.mean, **changed}
    past = [moment | {"test": moment["train"]} for moment in made["history"]]
    return made | {"test": test, "history": past}


def read(made: dict[str, Any]) -> ResultDocument:
    return parse_result(json.dumps(made), "result.json")


def test_the_page_of_its_run_quotes_it_with_what_it_does_not_mean() -> None:
    certificate = make_sealed()
    check_result(certificate, read(result(certificate)), "certificate.json")
    text = excerpt(certificate, "certificate.json").body.unescape()
    worst = main_statement(certificate)
    assert sample_sentence(certificate, worst) in text
    assert population_sentence(certificate, worst) in text
    assert "It is about a loss, not about accuracy" in text
    assert "aggregator signed it. This page was made without checking that" in text
    assert "NOT SIGNED" in excerpt(make_certificate(), "certificate.json").body


@pytest.mark.parametrize("changed", [{"n": 999}, {"mean": 0.123}])
def test_a_certificate_of_other_people_is_refused(changed: dict[str, object]) -> None:
    certificate = make_certificate()
    with pytest.raises(CertificateError, match=r"the result beside it is about others"):
        check_result(certificate, read(result(certificate, **changed)), "certificate.json")


def test_a_certificate_of_another_plan_or_of_a_split_without_people_is_refused() -> None:
    certificate = make_certificate()
    with pytest.raises(CertificateError, match="about the plan"):
        check_result(certificate, read(complete()), "certificate.json")
    with pytest.raises(CertificateError, match="about others"):
        check_result(certificate, read(result(certificate) | {"test": None}), "certificate.json")


def test_a_report_shows_the_certificate_that_lies_beside_its_result(tmp_path: Path) -> None:
    certificate = make_certificate(some_losses(200))
    files = {"result.json": json.dumps(result(certificate)), "certificate.json": to_text(certificate)}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    outcome = CliRunner().invoke(app, ["report", str(tmp_path / "result.json")])
    assert outcome.exit_code == 0, outcome.output
    assert '<section id="certificate">' in (tmp_path / "report.html").read_text(encoding="utf-8")
    (tmp_path / "report.html").unlink()
    (tmp_path / "certificate.json").write_text(files["certificate.json"].replace('"n": 200', '"n": 201'))
    outcome = CliRunner().invoke(app, ["report", str(tmp_path / "result.json")])
    assert outcome.exit_code == 0, outcome.output
    assert "certificate.json" in outcome.stderr
    assert '<section id="certificate">' not in (tmp_path / "report.html").read_text(encoding="utf-8")
