"""Whether a site has forgotten a run that it took part in: its state is gone, and its models are still there.

Decides what is said of it. A start cannot refuse, since a site may take part again; but what it answered before is
no longer known, and that is what its limits on repeated questions rest on.
"""

from __future__ import annotations

from pathlib import Path

from fedfair.errors import DataError
from fedfair.run.saved_model import read_saved

MODELS = "*/save/last.safetensors"


def forgotten_runs(state: Path, stem: str, runs: Path, plan_digest: str) -> str:
    """Return what is said of earlier runs of a plan of which the state knows nothing; empty where all is there.

    Args:
        state: the folder of the site's state.
        stem: what the names of the plan's files in it begin with.
        runs: the folder of the site's own copies of runs.
        plan_digest: "sha256:" and 64 hex digits.
    """
    # The one file that only a sum writes: others are made by whoever looks.
    if (state / f"{stem}.run").exists():
        return ""
    known = [path for path in sorted(runs.glob(MODELS)) if _plan_of(path) == plan_digest]
    if not known:
        return ""
    return (
        f"{state} knows nothing of {len(known)} earlier runs of this plan, whose models are in {runs}: restore it "
        "from a backup, or what this site has answered before is forgotten"
    )


def _plan_of(path: Path) -> str:
    """Return the digest of the plan that a model is of; empty where its file cannot be read."""
    try:
        return read_saved(path).saved.plan_digest
    except DataError:
        # What is damaged proves nothing.
        return ""
