"""Where one person counted at this site: runs, splits and rounds, and the models that follow. Shown here alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from collaborator.withdrawn.run_lineage import RunLineage
from fedfair.errors import DataError
from fedfair.plan.digest import format_digest
from fedfair.policy.site_config import SiteConfig, load_site_config
from fedfair.run.initial_model import vector_digest
from fedfair.run.saved_model import read_saved
from fedfair.withdrawal.lineage import CountedRun, CountedRuns, following, round_of_ceasing
from fedfair.withdrawal.owners import name_of
from fedfair.withdrawal.tombstone_file import tombstone_file


@dataclass(frozen=True, slots=True)
class FollowingModel:
    """A saved model of a run.

    Attributes:
        file: its name in the run's folder.
        weights: digest of its weights.
        round: training rounds behind it.
    """

    file: str
    weights: str
    round: int


@dataclass(frozen=True, slots=True)
class TracedRun:
    """A run in which a person counted, or that follows from one.

    Attributes:
        run: its id.
        plan: digest of its plan.
        splits: that had a record of the person; none where the run only follows.
        after_round: training rounds that were done before the person counted.
        until_round: after which the person's records ceased to count; None where they counted to the end.
        through: the runs whose models this one begins with; none where the person counted in it.
        models: what this site keeps of it.
    """

    run: str
    plan: str
    splits: tuple[str, ...]
    after_round: int
    until_round: int | None
    through: tuple[str, ...]
    models: tuple[FollowingModel, ...]


@dataclass(frozen=True, slots=True)
class PersonTrace:
    """Where a person counted.

    Attributes:
        withdrawn: when the person withdrew, ISO 8601 in UTC; empty where not.
        runs: the runs, the oldest first.
    """

    withdrawn: str
    runs: tuple[TracedRun, ...]


def trace_person(config_file: Path, identifier: str) -> PersonTrace:
    """Return where a person counted at a site.

    Args:
        config_file: the site's `collaborator.yaml`.
        identifier: as its text stands in the column of the site's own data.

    Raises:
        FedfairError: a file of the site is wrong or damaged, or it has never noted whose records counted.
    """
    config = load_site_config(config_file)
    file = tombstone_file(config)
    key = None if file is None else file.key()
    if file is None or key is None:
        raise DataError(
            f"{config.collaborator} has noted of no run whose records counted",
            "name the column that says so under data.record_id; from the next start on it is noted",
        )
    person = key.full_hash(identifier)
    at = next((entry.at for entry in file.load().entries if entry.person == person), "")
    with RunLineage(config).looked_at() as counted:
        return PersonTrace(at, tuple(_traced(counted, runs_folder(config_file, config), name_of(person))))


def withdrawn_from_run(config_file: Path, run: str) -> int:
    """Return how many persons have withdrawn who counted in a run of this site, or in one that it follows from.

    Args:
        config_file: the site's `collaborator.yaml`.
        run: the run's id.

    Raises:
        FedfairError: a file of the site is wrong or damaged.
    """
    config = load_site_config(config_file)
    file = tombstone_file(config)
    withdrawn = frozenset[int]() if file is None else file.load().names
    with RunLineage(config).looked_at() as counted:
        origins = {one.run for one in counted.runs if one.run == run or run in following(counted.runs, {one.run})}
        starts = [one for one in counted.runs if one.run in origins]
        return len(frozenset().union(*(counted.among(one, withdrawn) for one in starts)))


def runs_folder(config_file: Path, config: SiteConfig) -> Path:
    """Return the folder of a site's own copies of runs."""
    return config_file.parent / "runs" / config.collaborator


def _traced(counted: CountedRuns, folder: Path, name: int) -> Iterator[TracedRun]:
    runs = counted.runs
    direct = {place: splits for place, run in enumerate(runs) if (splits := counted.splits(run, name))}
    later = following(runs, {runs[place].run for place in direct})
    told = set[str]()
    for place, run in enumerate(runs):
        if place in direct:
            yield _run(run, folder, direct[place], round_of_ceasing(runs, place), ())
        elif run.run in later and run.run not in told:
            told.add(run.run)
            yield _run(run, folder, (), None, later[run.run])


def _run(
    run: CountedRun, folder: Path, splits: tuple[str, ...], until: int | None, through: tuple[str, ...]
) -> TracedRun:
    models = () if run.is_evaluation else tuple(models_in(folder / run.run / "save"))
    return TracedRun(run.run, run.plan, splits, run.round, until, through, models)


def models_in(folder: Path) -> Iterator[FollowingModel]:
    """Yield the models in the folder of one run, `save/`, by the names of their files."""
    for path in sorted(folder.glob("*.safetensors")):
        try:
            saved = read_saved(path).saved
        except DataError:
            # References, or a file that is damaged: no model that anybody could use.
            continue
        yield FollowingModel(path.name, format_digest(vector_digest(saved.model.vector)), int(saved.round))
