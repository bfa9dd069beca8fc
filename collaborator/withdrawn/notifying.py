"""What this site tells the lead of withdrawals: the runs of one federation that are affected, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path

from collaborator.site_data import own_site
from collaborator.withdrawn.recording import withdrawal_file
from collaborator.withdrawn.run_lineage import RunLineage
from collaborator.withdrawn.tracing import models_in, runs_folder
from fedfair.withdrawal.lineage import CountedRun, CountedRuns, following
from fedfair.withdrawal.notice import BEGINS, COUNTED, AffectedRun, WithdrawalNotice


def withdrawal_notice(config_file: Path, plan_file: Path, day: date) -> WithdrawalNotice:
    """Return a site's notice of all withdrawals up to now, unsigned.

    Args:
        config_file: the site's `collaborator.yaml`.
        plan_file: a plan of the federation that is told.
        day: when it is said.

    Raises:
        FedfairError: a file is wrong or damaged, or nothing says whose a record is.
    """
    site = own_site(None, config_file, plan_file)
    withdrawn = withdrawal_file(site).load().names
    federation = site.plan.federation.name
    with RunLineage(site.config).looked_at() as counted:
        folder = runs_folder(config_file, site.config)
        runs = tuple(_affected(counted, withdrawn, federation, folder))
    return WithdrawalNotice(federation, site.participant, day.isoformat(), runs)


def _affected(
    counted: CountedRuns, withdrawn: frozenset[int], federation: str, folder: Path
) -> Iterator[AffectedRun]:
    runs = [run for run in counted.runs if not run.is_evaluation]
    direct = {run.run for run in runs if counted.among(run, withdrawn)}
    affected = direct | following(runs, direct).keys()
    # A run that was started several times is one run, with all that it begins with.
    for name in dict.fromkeys(run.run for run in runs if run.run in affected and run.federation == federation):
        starts = [run for run in runs if run.run == name]
        begins = any(origin in affected for run in starts for origin in run.follows)
        last = _last_of(runs, starts[0].plan)
        superseded = "" if last.run in affected else last.run
        models = tuple(dict.fromkeys(model.weights for model in models_in(folder / name / "save") if model.round))
        yield AffectedRun(name, starts[0].plan, BEGINS if begins else COUNTED, superseded, models)


def _last_of(runs: list[CountedRun], plan: str) -> CountedRun:
    return next(run for run in reversed(runs) if run.plan == plan)
