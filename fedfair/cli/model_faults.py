"""The faults of a model by the result of its run, and by whom it is not released: shown to every user of its file.

Decides where the result is looked for: beside the model, or beside the folder `save` that the model is in, as
every run leaves them. A file that was copied away from its result says nothing of it, so a warning that is not
given is no praise. Among a site's own copies of runs it is said too how many persons have withdrawn since.
"""

from __future__ import annotations

from pathlib import Path

from fedfair.errors import FedfairError
from fedfair.process.terminal import warn
from fedfair.results.reading import read_result
from fedfair.results.release import withheld_sentence

RESULT = "result.json"
SITE_FILE = "collaborator.yaml"
SITE_DEPTH = 5
"""Folders above a model in a site's own copy of a run, that of the site among them."""


def faults_of_model(model_file: Path, plan_digest: str) -> tuple[str, ...]:
    """Return by whom a saved model is not released, and the sentences of its verdict; none without a fault.

    A result of another plan says nothing of it.

    Args:
        model_file: the saved model.
        plan_digest: of the plan that trained it.
    """
    return (*_withdrawn(model_file), *_verdict(model_file, plan_digest))


def _withdrawn(model_file: Path) -> tuple[str, ...]:
    """Return the sentence about persons who have withdrawn since they counted, of a site's own copy of a run."""
    # The file is <site>/runs/<name>/<run>/save/<file>.
    above = model_file.resolve().parents
    if len(above) < SITE_DEPTH or above[3].name != "runs" or not (above[4] / SITE_FILE).is_file():
        return ()
    from collaborator.withdrawn.tracing import withdrawn_from_run

    try:
        count = withdrawn_from_run(above[4] / SITE_FILE, above[1].name)
    except FedfairError as fault:
        return (f"who has withdrawn from this model is not known: {fault.message}",)
    if not count:
        return ()
    return (f"{count} persons have withdrawn whose records counted in this model, or in one that it begins with",)


def _verdict(model_file: Path, plan_digest: str) -> tuple[str, ...]:
    folder = model_file.resolve().parent
    for place in (folder / RESULT, folder.parent / RESULT):
        if not place.is_file():
            continue
        try:
            result = read_result(place)
        except FedfairError as fault:
            return (f"what the run says of this model is not known: {fault.message}",)
        if result.plan_digest == plan_digest:
            verdict = result.verdict
            faults = () if verdict is None or not verdict.findings else verdict.sentences
            return (*withheld_sentence(result.release), *faults)
    return ()


def warn_of_model(model_file: Path, plan_digest: str) -> None:
    """Warn of these faults."""
    for fault in faults_of_model(model_file, plan_digest):
        warn(fault)
