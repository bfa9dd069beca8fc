"""`fedfair model`: what a saved model is, its card for people, and the same model for other systems."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer
from rich.table import Table
from rich.text import Text

from fedfair.cli.model_faults import faults_of_model, warn_of_model
from fedfair.cli.predict import FROZEN, KEPT
from fedfair.cli.stated_form import own_form
from fedfair.errors import DataError
from fedfair.process.terminal import console, tell, warn
from fedfair.store.atomic_file import replace_file, write_whole

if TYPE_CHECKING:
    from fedfair.run.saved_model import DescribedModel

app = typer.Typer(no_args_is_help=True)

MODEL = typer.Option(Path("save/last.safetensors"), "--model", help="The saved model.")
REPLACE = typer.Option(False, "--replace", help="Replace the output if it exists.")
QUIET = typer.Option(False, "--quiet", "-q", help="Show only errors.")


@app.command()
def show(
    model_file: Path = MODEL,
    as_json: bool = typer.Option(False, "--json", help="Print JSON instead of tables."),
) -> None:
    """Show what a saved model takes and returns, and which plan trained it."""
    from fedfair.conformal.prediction_sets import set_words
    from fedfair.plan.losses import has_classes
    from fedfair.report.model_facts import column_facts, model_facts
    from fedfair.run.calibration_text import answer_words

    model = _described(model_file)
    faults = faults_of_model(model_file, model.saved.plan_digest)
    if as_json:
        said = model.origin.description.model_dump(mode="json")
        facts = {
            "plan_digest": model.saved.plan_digest,
            "federation": model.origin.federation,
            "round": int(model.saved.round),
            "threshold": model.saved.model.threshold,
            "values": model.layout.dimension,
            "verdict": list(faults),
        }
        if model.saved.which is not None:
            facts["which_model"] = model.saved.which.words
        if has_classes(model.origin.description.record_loss):
            facts["returns"] = answer_words(model.saved.calibration)
        facts["sets"] = set_words(model.saved.sets)
        console.print_json(json.dumps(facts | said))
        return
    table = Table(box=None, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for heading, words in model_facts(model):
        table.add_row(Text(heading), Text(words))
    console.print(table)
    columns = Table("column", "holds", "a missing value becomes")
    for row in column_facts(model):
        columns.add_row(*(Text(cell) for cell in row))
    if columns.row_count:
        console.print(columns)
    for fault in faults:
        warn(fault)


@app.command()
def card(
    model_file: Path = MODEL,
    result_file: Path = typer.Option(Path("result.json"), "--result", help="The result of the run."),
    certificate_file: Path = typer.Option(None, "--certificate", help="The certificate of its evaluation."),
    output: Path = typer.Option(Path("MODEL_CARD.md"), "--output", "-o", help="Write the card here (Markdown)."),
    replace: bool = REPLACE,
    quiet: bool = QUIET,
) -> None:
    """Write the card of a saved model: the worst-off first, then what it takes and what is not shown."""
    from fedfair.certificate.document import parse_certificate
    from fedfair.report.model_card import model_card
    from fedfair.results.reading import read_result

    model, result = _described(model_file), read_result(result_file)
    _check_place(output, replace=replace)
    certificate = None
    if certificate_file is not None:
        if not certificate_file.is_file():
            raise DataError(f"there is no certificate {certificate_file}", "make one with `fedfair certificate`")
        certificate = parse_certificate(certificate_file.read_bytes(), str(certificate_file))
    text = model_card(model, result, certificate, str(certificate_file))
    try:
        write_whole(output, text)
    except OSError as error:
        raise DataError(f"the card cannot be written to {output}: {error.strerror}", "check the folder") from error
    _written(output, quiet=quiet)


@app.command()
def export(
    model_file: Path = MODEL,
    form: Literal["onnx", "torchscript", "state-dict"] = typer.Option(
        "onnx", "--format", help="onnx, torchscript, or state-dict (torch.load)."
    ),
    output: Path = typer.Option(..., "--output", "-o", help="Write the exported model here."),
    data: Path = typer.Option(None, "--data", help="Compare the export with the model on these records."),
    config: Path = typer.Option(
        None, "--config", "-c", help="With --data: a site's own configuration, whose data.format they have."
    ),
    workspace: Path = typer.Option(
        None, "--workspace", help="The plan's folder, for a model of own code, which is then run."
    ),
    code_digest: str = typer.Option(
        None, "--code-digest", help="Own code that may run, for a model's file that cannot tell what trained it."
    ),
    frozen: Path = FROZEN,
    kept: Path = KEPT,
    replace: bool = REPLACE,
    quiet: bool = QUIET,
) -> None:
    """Export a saved model with the scaling of its features inside, compared with its own predictions."""
    if data is not None and not data.exists():
        raise DataError(f"there is no file {data}", "give a file of records that the model can predict")
    written = own_form(config, None)
    _check_place(output, replace=replace)
    # Torch takes seconds to load; a wrong path should not have to wait for it.
    from fedfair.prediction.export import export_model
    from fedfair.prediction.loaded_model import load_model
    from fedfair.prediction.prediction_files import read_input, writing

    model = load_model(model_file, workspace=workspace, code_digest=code_digest, frozen=frozen, kept=kept)
    raw = model.raw if written is None else model.raw.written(written.section, written.key)
    features = None if data is None else read_input(data, raw).features
    exported = export_model(model, form, features)
    with writing("model", output):
        replace_file(output, [exported.content])
    warn_of_model(model_file, model.plan_digest)
    if not quiet:
        compared = f"{exported.checked} {'random ' if data is None else ''}records"
        words = f"compared on {compared}: no probability differs by more than {exported.difference:.1g}"
        tell(words)
    _written(output, quiet=quiet)


def _described(path: Path) -> DescribedModel:
    from fedfair.run.saved_model import read_saved

    if not path.is_file():
        raise DataError(f"there is no model {path}", "give a model such as save/last.safetensors")
    return read_saved(path)


def _check_place(path: Path, *, replace: bool) -> None:
    if not path.parent.is_dir():
        raise DataError(f"{path}: the folder {path.parent} does not exist", "create it, or name another file")
    if path.is_dir():
        raise DataError(f"{path} is a folder", "name a file in it")
    if path.exists() and not replace:
        raise DataError(f"{path} exists", "name another file, or replace this one with --replace")


def _written(path: Path, *, quiet: bool) -> None:
    if not quiet:
        tell(f"written: {path}")
