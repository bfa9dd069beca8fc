"""`fedfair predict`: a saved model on raw records, from the model's file alone."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fedfair.aggregation.calibration import SCORES_ONLY
from fedfair.cli.model_faults import warn_of_model
from fedfair.cli.stated_form import own_form
from fedfair.errors import DataError
from fedfair.process.printable import printable
from fedfair.process.terminal import tell
from fedfair.store.atomic_file import write_whole

if TYPE_CHECKING:
    from fedfair.prediction.loaded_model import SavedModel
    from fedfair.prediction.model_inputs import RawRows

STANDARD = "-"
FROZEN = typer.Option(
    None, "--frozen", help="Where the parameters are that the plan froze; beside the plan if not said."
)
KEPT = typer.Option(
    None, "--kept", help="Where the part of the model is that a site keeps; beside the model if not said."
)


def predict_command(
    model_file: Path = typer.Option(Path("save/last.safetensors"), "--model", help="The saved model."),
    data: Path = typer.Option(
        ...,
        "--data",
        help="The records: a table as the plan reads them, .npy, a folder of images or of eICU tables.",
    ),
    output: Path = typer.Option(..., "--output", "-o", help="Write predictions here; '-' for standard output."),
    keep: list[str] = typer.Option([], "--keep", help="Keep this column beside the predictions, such as an id."),
    ignore_unknown: bool = typer.Option(
        False, "--ignore-unknown", help="Ignore columns that the model does not know, instead of refusing them."
    ),
    fill: list[str] = typer.Option(
        [], "--fill", help="COLUMN=NUMBER for a missing one: this site's own mean, where training filled in that."
    ),
    config: Path = typer.Option(
        None, "--config", "-c", help="A site's own configuration: the records are written as its data.format says."
    ),
    written: str = typer.Option(
        None,
        "--format",
        help='How the records are written, where not as in training: \'{separator: ";", decimal: ","}\'.',
    ),
    workspace: Path = typer.Option(
        None, "--workspace", help="The plan's folder, for a model of own code, which is then run."
    ),
    code_digest: str = typer.Option(
        None, "--code-digest", help="Own code that may run, for a model's file that cannot tell what trained it."
    ),
    frozen: Path = FROZEN,
    kept: Path = KEPT,
    scores: bool = typer.Option(
        False, "--scores", help="Write the model's own scores, without the calibration of its file."
    ),
    sets: bool = typer.Option(
        False, "--sets", help="Also write each record's set of classes, or interval, by the promise of the file."
    ),
    replace: bool = typer.Option(False, "--replace", help="Replace the output if it exists."),
    quiet: bool = typer.Option(False, "--quiet", "-q", help="Show only errors."),
) -> None:
    """Predict records with a saved model. Its file is enough; no plan is needed."""
    fills, form = dict(map(_fill, fill)), own_form(config, written)
    _check_there(data)
    # Torch takes seconds to load; a wrong path should not have to wait for it.
    from fedfair.prediction.loaded_model import load_model
    from fedfair.prediction.prediction_files import check_prediction_place, read_input

    places = {"workspace": workspace, "frozen": frozen, "kept": kept}
    model = load_model(model_file, fills=fills, code_digest=code_digest, **places)
    shown, calibrated = str(output) == STANDARD, _is_calibrated(model, scores=scores, sets=sets)
    if not shown:
        check_prediction_place(output, keep, _columns(model, sets=sets), replace=replace)
    raw = model.raw if form is None else model.raw.written(form.section, form.key)
    rows = read_input(data, raw, keep, ignores_unknown=ignore_unknown)
    _write(_text(model, rows, calibrated=calibrated, sets=sets), None if shown else output)
    warn_of_model(model_file, model.plan_digest)
    if not quiet:
        _say(model, rows.notes, scores=scores, sets=sets)
        if not shown:
            tell(f"{len(rows.features)} records predicted: {output}")


def _check_there(data: Path) -> None:
    if not data.exists():
        raise DataError(f"there is no file {data}", "give the file of the records that are to be predicted")


def _columns(model: SavedModel, *, sets: bool) -> tuple[str, ...]:
    """Return the names of the columns that are written."""
    from fedfair.prediction.prediction_files import prediction_columns, set_columns

    found = prediction_columns(model.classes) if model.has_classes else model.answer_columns
    return (*found, *set_columns(model.classes)) if sets else found


def _text(model: SavedModel, rows: RawRows, *, calibrated: bool, sets: bool) -> str:
    """Return the predictions of records as CSV."""
    from fedfair.prediction.prediction_files import prediction_text

    if not model.has_classes:
        numbers = model.answers(rows)
        said = numbers.tolist()
        beside = model.intervals_of(numbers).tolist() if sets else [[]] * len(said)
    else:
        found, places = model.scores_and_classes(rows)
        chances = (model.probabilities(found) if calibrated else found).tolist()
        said = [[model.classes[place], *each] for place, each in zip(places.tolist(), chances, strict=True)]
        beside = model.sets_of(found).astype(int).tolist() if sets else [[]] * len(said)
    both = [[*each, *more] for each, more in zip(said, beside, strict=True)]
    return prediction_text(_columns(model, sets=sets), both, rows.kept)


def _write(text: str, output: Path | None) -> None:
    """Write predictions to a file; None is standard output."""
    from fedfair.prediction.prediction_files import writing

    if output is not None:
        with writing("predictions", output):
            write_whole(output, text)
    else:
        sys.stdout.write(printable(text, keep="\n") if sys.stdout.isatty() else text)


def _is_calibrated(model: SavedModel, *, scores: bool, sets: bool) -> bool:
    """Return whether probabilities are written; refuse scores or sets of a model that has none."""
    if sets:
        model.check_sets()
    if scores and not model.has_classes:
        raise DataError(
            f"this model has no scores of classes; its loss is the {model.loss.title}", "omit --scores"
        )
    return model.is_calibrated and not scores


def _say(model: SavedModel, notes: Iterable[str], *, scores: bool, sets: bool) -> None:
    """Say which model has predicted, what its numbers are, and what was noticed on the way."""
    if model.which is not None:
        tell(f"predicted by {model.which.words}")
    if model.has_classes:
        said = f"{SCORES_ONLY}: --scores asks for them" if scores else model.answer_words
        tell(said)
    if sets:
        tell(model.set_words)
    for note in notes:
        tell(note, "yellow")


def _fill(words: str) -> tuple[str, float]:
    """Return the column and the number of COLUMN=NUMBER."""
    column, mark, text = words.rpartition("=")
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (mark and column and math.isfinite(number)):
        raise DataError(f"--fill {words} is not COLUMN=NUMBER", "write it as --fill age=54.5")
    return column, number
