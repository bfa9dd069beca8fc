"""From a plan and the files that a machine has to every collaborator's splits.

Decides who owns which record, and the order in which things happen: read, deal, hold out, fill in. A simulation
holds all records and divides them; a deployed site reads its own. Where the plan declares a `partition`, it
speaks of one data set that is divided, so a site that reads the same data set takes its own part of it and ends up
with the records that the simulation gave it. Without a partition, what a site reads is its own. Reading is
`source_modules.py`'s business.

A site with fewer records than its policy wants takes part with nothing: it trains on none and adds zeros to every
sum, and only its own operator can see it. The same holds where the plan's filters take none of its records. So
neither a start that fails nor a sum over a few people tells who has a record that a filter asks for.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fedfair.aggregation.column_statistics import statistics_counts, statistics_layout
from fedfair.aggregation.survey import SurveyedRecords, SurveyLayout, survey_layout
from fedfair.errors import PlanError
from fedfair.ids import ParticipantId
from fedfair.plan.derived import deals_by_record, scales_by_ranges, standardises, surveys, trains
from fedfair.plan.losses import CROSS_ENTROPY
from fedfair.plan.schema import Plan
from fedfair.plan.sources import BUILT_IN, CsvSource, Partition, section_of
from fedfair.policy.site_config import SiteConfig
from fedfair.tables.dataset import Dataset, Splits, no_records
from fedfair.tables.feature_storage import FeatureStorage, simulation_storage
from fedfair.tables.holdout import NothingLeftError, hold_out
from fedfair.tables.numeric_columns import check_columns, filled_with_means, refuse_missing, scaled_by_ranges
from fedfair.tables.partition import deal
from fedfair.tables.pixels import feature_values
from fedfair.tables.profile import DataProfile, data_profile, number_columns
from fedfair.tables.site_survey import SiteSurvey, mask_name, site_survey
from fedfair.tables.source_modules import (
    DataPaths,
    FileRecords,
    check_declared,
    read_files,
    simulation_paths,
    site_paths,
)


@dataclass(frozen=True, slots=True)
class SiteRecords:
    """One site's own records, and what they look like before anything is filled in.

    Attributes:
        splits: what it takes part with.
        profile: of these records.
        withheld: in words for its operator, which records it does not take part with, and why.
    """

    splits: Splits
    profile: DataProfile
    withheld: tuple[str, ...] = ()


def federation_key(plan: Plan) -> str:
    """Return a text that is the same for two plans only where `load_federation` gives both the same records."""
    # Of a task, only the model has no part in which records there are, how they are split and filled in.
    task = plan.task.model_dump(mode="json", exclude={"model"})
    by_record = deals_by_record(plan)
    return json.dumps([task, plan.federation.collaborators, plan.training.seed, by_record])


def load_federation(plan: Plan, root: Path, storage: FeatureStorage | None = None) -> dict[ParticipantId, Splits]:
    """Return every collaborator's splits, for a simulation.

    Args:
        plan: the plan.
        root: the folder that the plan's paths start from.
        storage: where features are held; None for that of a simulation in this folder.

    Raises:
        DataError: files are missing or are not what the plan declares.
        PlanError: the plan does not say how to divide the records, or says it wrongly.
    """
    task, storage = plan.task, storage or simulation_storage(root)
    files = files_of_sites(plan)
    if files is not None:
        return {name: read_site_file(plan, name, file, root, storage) for name, file in files.items()}
    rule = _rule(plan)
    group = plan.training.options.group_column
    extra = _columns_of(rule) if group is None else (*_columns_of(rule), group)
    parts = read_files(task, replace(simulation_paths(task, root), storage=storage), extra).splits
    check_declared(task, parts.train.schema)
    return {name: finished(plan, name, own) for name, own in _deal(plan, parts, rule).items()}


def files_of_sites(plan: Plan) -> dict[ParticipantId, str] | None:
    """Return each site's file, in the order of the plan, where each has one as in a deployment; None where not.

    Raises:
        PlanError: the plan does not name one file for each collaborator.
    """
    data, names = plan.task.data, plan.federation.collaborators
    if not isinstance(data, CsvSource) or not data.csv.train_of:
        return None
    files = data.csv.train_of
    if set(files) != set(names):
        raise PlanError(
            f"task.data.csv.train_of: and federation.collaborators do not name the same: "
            f"{', '.join(sorted(set(files) ^ set(names)))}",
            "name one file for each collaborator",
        )
    return {ParticipantId(name): files[name] for name in names}


def read_site_file(
    plan: Plan, participant: ParticipantId, file: str, root: Path, storage: FeatureStorage | None = None
) -> Splits:
    """Return a collaborator's splits from a file that holds its records alone.

    Raises:
        DataError: it is missing or is not what the plan declares.
    """
    parts = read_files(
        plan.task, DataPaths(root, root, root / file, None, storage or simulation_storage(root)), ()
    ).splits
    check_declared(plan.task, parts.train.schema)
    return finished(plan, participant, parts)


def read_site_records(
    plan: Plan,
    site: SiteConfig,
    participant: ParticipantId,
    root: Path,
    *,
    code: Path | None = None,
    storage: FeatureStorage | None = None,
    fewest: int = 0,
    keep: Collection[str] = (),
) -> SiteRecords:
    """Return one site's splits, read from its own files, and their profile.

    Args:
        plan: the plan.
        site: the site's `collaborator.yaml`, which names its files.
        participant: the site's name in the plan.
        root: the folder that the site's paths start from.
        code: where a "module:function" is looked for; by default in `root`.
        storage: where features are held; None for memory, whatever there is of them.
        fewest: with fewer training records the site takes part with none, with fewer held-out ones without these
            (`with_enough`); 0 where nothing leaves the site.
        keep: columns that are kept raw beside those that the plan keeps.

    Raises:
        DataError: files are missing or are not what the plan declares.
        PlanError: the plan divides one data set, and says it wrongly.
    """
    read = read_unfinished(plan, site, participant, root, code=code, storage=storage, fewest=fewest, keep=keep)
    own, withheld = with_enough(_finished_unless_few(plan, participant, read.splits, fewest), fewest)
    if surveys(plan) and own.survey is None:
        own = replace(own, survey=surveyed(plan, own.train))
    profile = replace(data_profile(plan.task, own, read.columns or ()), digests=read.digests)
    return SiteRecords(own, profile, withheld)


def with_enough(splits: Splits, fewest: int) -> tuple[Splits, tuple[str, ...]]:
    """Return what a site takes part with, and in words what it does not.

    Args:
        splits: its records.
        fewest: of policy.min_records. With fewer training records it has none at all; a held-out split of fewer
            is left out alone.
    """
    few = {name: len(part) for name, part in splits.parts.items() if len(part) < fewest}
    if "train" in few:
        count, nothing = few["train"], Splits(no_records(splits.train.schema))
        words = f"{count} training records of this site count under the plan, and policy.min_records is {fewest}"
        return nothing, (f"{words}: it takes part with nothing, and adds zeros to every sum",)
    told = (
        f"{count} {name} records of this site are fewer than policy.min_records, {fewest}: they are in no sum"
        for name, count in few.items()
    )
    enough = {name: part for name, part in splits.parts.items() if name not in few}
    own = Splits(splits.train, enough.get("validation"), enough.get("test"), splits.survey, splits.counted)
    return own, tuple(told)


def _finished_unless_few(plan: Plan, participant: ParticipantId, own: Splits, fewest: int) -> Splits:
    """Return a site's records as it trains on them; as they are where they are too few for that."""
    if len(own.train) < fewest:
        return own
    try:
        return finished(plan, participant, own)
    except NothingLeftError:
        if not fewest:
            raise
        return Splits(no_records(own.train.schema))


def read_unfinished(
    plan: Plan,
    site: SiteConfig,
    participant: ParticipantId,
    root: Path,
    *,
    code: Path | None = None,
    storage: FeatureStorage | None = None,
    fewest: int = 0,
    keep: Collection[str] = (),
) -> FileRecords:
    """Return one site's records before anything is held out, filled in or scaled; as `read_site_records`."""
    task = plan.task
    built_in = isinstance(task.data, str) and task.data in BUILT_IN
    rule = _rule(plan) if built_in or task.partition is not None else None
    # Where all sites read one data set and take a share of it, no table is one site's.
    paths = replace(
        site_paths(site, root), workspace=code or root, storage=storage, fewest=fewest if rule is None else 0
    )
    if rule is not None and rule.scheme != "column" and paths.owners is not None and paths.owners.withdrawn:
        raise PlanError(
            f"{len(paths.owners.withdrawn)} persons have withdrawn at this site, and the plan divides one data "
            "set by chance: without their records every site would have others",
            "remove their records from the data set itself, at every site",
        )
    read = read_files(task, paths, tuple(dict.fromkeys((*_columns_of(rule), *keep))))
    check_declared(task, read.splits.train.schema)
    own = read.splits if rule is None else _deal(plan, read.splits, rule)[participant]
    columns = number_columns(own) if read.columns is None else read.columns
    return replace(read, splits=own, columns=columns)


def _rule(plan: Plan) -> Partition | None:
    """Return how one data set is divided; None where there is only one collaborator to have it."""
    task = plan.task
    if task.owner_column is not None:
        return Partition(scheme="column", column=task.owner_column)
    if task.partition is None and len(plan.federation.collaborators) > 1:
        raise PlanError(
            "task.partition: is missing, and there is one data set for several collaborators",
            "where each site has its own file, `fedfair plan advise -c collaborator.yaml` and `fedfair data "
            "check` look at that of a site, and a simulation needs all of them (task.data.csv.train_of); only one "
            "data set for all is divided, such as by {scheme: label}",
        )
    return task.partition


def _columns_of(rule: Partition | None) -> tuple[str, ...]:
    return () if rule is None or rule.column is None else (rule.column,)


def _deal(plan: Plan, whole: Splits, rule: Partition | None) -> dict[ParticipantId, Splits]:
    names = [ParticipantId(name) for name in plan.federation.collaborators]
    if rule is None:
        return {names[0]: whole}
    found = {}
    for name, own in deal(list(whole.parts.values()), rule, names, plan.training.seed).items():
        parts = dict(zip(whole.parts, own, strict=True))
        # Nobody's validation or test records are empty: there are none then.
        found[name] = Splits(parts["train"], parts.get("validation") or None, parts.get("test") or None)
    return found


def finished(plan: Plan, participant: ParticipantId, own: Splits) -> Splits:
    """Return a site's records as it trains on them.

    Holds out what the plan asks for, then fills in missing values from what is left to train on. Where features
    are standardised, their sums must fit into a masked sum, also in a simulation, so that a plan which has been
    tried out works.

    Args:
        plan: the plan.
        participant: whose records these are.
        own: all its records, with those that the source itself keeps apart.

    Raises:
        PlanError: the plan holds records out that the source has kept apart already.
        DataError: a value is missing that the plan does not fill in, or nothing is left to train on.
    """
    task = plan.task
    apart = ("test", task.test_fraction, own.test), ("validation", task.validation_fraction, own.validation)
    for name, fraction, part in apart:
        if part is not None and fraction > 0:
            raise PlanError(
                f"task.{name}_fraction: is {fraction}, but the data bring such records of their own",
                f"set {name}_fraction: 0",
            )
    by_sums = standardises(plan, len(own.train.schema.numeric))
    if by_sums or surveys(plan):
        check_columns(own.train, participant, task.loss if by_sums else CROSS_ENTROPY)
    held = hold_out(
        own.train,
        task.test_fraction,
        task.validation_fraction,
        plan.training.seed,
        participant,
        task.test_fold,
        by_record=deals_by_record(plan),
    )
    splits = Splits(held.train, own.validation or held.validation, own.test or held.test)
    if not trains(plan):
        return counted(plan, splits)
    described = surveyed(plan, held.train) if surveys(plan) else None
    if scales_by_ranges(plan):
        splits = scaled_by_ranges(splits)
    section = section_of(task.data)
    if section is None or not section.leaves_gaps:
        refuse_missing(splits, participant)
    elif not by_sums:
        splits = filled_with_means(splits, participant)  # otherwise the scaling fills in the overall mean
    return replace(splits, survey=described)


def counted(plan: Plan, splits: Splits) -> Splits:
    """Return a site's records with what they add to the plan's statistics; gaps are zeros, which nothing reads."""
    train = splits.train
    own = statistics_counts(unfilled(train, survey_layout(plan, train.schema)), statistics_layout(plan))
    filled = replace(train, features=np.nan_to_num(feature_values(train.features), nan=0.0))
    return replace(splits, train=filled, counted=own)


def surveyed(plan: Plan, train: Dataset) -> SiteSurvey:
    """Return a site's part of the plan's survey.

    Args:
        plan: the plan.
        train: its training records, with NaN where a number is missing.
    """
    layout = survey_layout(plan, train.schema)
    return site_survey(unfilled(train, layout), layout)


def unfilled(train: Dataset, layout: SurveyLayout) -> SurveyedRecords:
    """Return records with NaN wherever a number is missing, also where the plan has zero for it.

    Args:
        train: the records as they were read.
        layout: the columns of the plan's survey.
    """
    features, masks = feature_values(train.features), train.columns
    hidden = [(column.place, mask_name(column.name)) for column in layout.numeric]
    if any(name in masks for _, name in hidden):
        features = features.copy()
        for place, name in hidden:
            if name in masks:
                features[masks[name].astype(np.bool_), place] = np.nan
    unknown = tuple(
        int(np.count_nonzero(masks[name])) if (name := mask_name(column.name)) in masks else 0
        for column in layout.categories
    )
    return SurveyedRecords(features, train.labels, unknown)


class SiteFiles(Mapping[ParticipantId, Splits]):
    """Records by name; each look at one reads its file again.

    Args:
        plan: a plan whose `csv.train_of` names the files.
        root: the folder that the plan's paths start from, on every machine that reads.
        names: of those who are in it; None for all.

    Raises:
        PlanError: the plan does not name one file for each collaborator.
    """

    def __init__(self, plan: Plan, root: Path, names: Collection[ParticipantId] | None = None) -> None:
        files = files_of_sites(plan) or {}
        self._plan, self._root = plan, root
        self._files = {name: files[name] for name in (files if names is None else names)}

    def __getitem__(self, name: ParticipantId) -> Splits:
        return read_site_file(self._plan, name, self._files[name], self._root)

    def __iter__(self) -> Iterator[ParticipantId]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def only(self, names: Collection[ParticipantId]) -> SiteFiles:
        """Return the records of some."""
        return SiteFiles(self._plan, self._root, names)
