"""A federation in one process, from a plan or from arrays: the run, its model, and evaluations of it.

Hands the work to `fedfair.simulation`; decides only where a plan's paths start and what an evaluation of more
records is. The features of those are scaled as the model's were.
"""

from __future__ import annotations

import copy
import inspect
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from fedfair.api.arrays import ArrayFederation
from fedfair.api.comparison import JudgedModel, ModelComparison, for_notebook
from fedfair.api.federation import read_federation
from fedfair.errors import DataError, PlanError
from fedfair.fairness.metrics import RiskSummary, summarise_losses
from fedfair.fairness.record_losses import Losses
from fedfair.ids import ParticipantId
from fedfair.plan.derived import (
    given_references,
    keeps_parameters,
    reference_of,
    reported_group_sizes,
    scales_by_ranges,
)
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.fields import Section
from fedfair.plan.module_code import IN_MEMORY, hold
from fedfair.plan.schema import Plan
from fedfair.plan.sources import CsvSource
from fedfair.prediction.loaded_model import SavedModel
from fedfair.process.rounds_bar import rounds_bar
from fedfair.process.terminal import error_console
from fedfair.report.blocks import paragraph
from fedfair.report.charts import group_size_curves
from fedfair.report.figures import draw_on
from fedfair.report.sentences import Reported, headline, labelled, second_line
from fedfair.results.document import ResultDocument
from fedfair.results.warnings import result_warnings
from fedfair.run.initial_model import StatedWeights
from fedfair.run.reference_file import read_references, write_references
from fedfair.run.saved_model import DescribedModel, save_model, without_noise
from fedfair.run.training_run import Progress
from fedfair.simulation.backend import Engine, RayCluster
from fedfair.simulation.simulate import SimulationOutcome, simulate_sites
from fedfair.tables.dataset import Splits
from fedfair.tables.in_memory import SiteArrays, dataset_of, read_labels, read_pair
from fedfair.tables.numeric_columns import scaled_by_ranges
from fedfair.training.assembly import flat_model
from fedfair.training.client import TrainingClient
from fedfair.training.device import choose_device
from fedfair.training.freezing import begin_with

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

EVALUATED = ParticipantId("evaluated")
"""The name under which records are evaluated that belong to no site."""


class UntrainedModelWarning(UserWarning):
    """A simulation returns the model before round 1, because no trained one was better."""


@dataclass(frozen=True, slots=True)
class SimulatedFederation:
    """The outcome of a simulated federation.

    Attributes:
        plan: by which it ran.
        result: the same figures as in the file `result.json`: risks by split and group size, the verdict, the
            costs.
    """

    plan: Plan
    result: ResultDocument
    _simulated: SimulationOutcome
    _federation: ArrayFederation
    _root: Path

    def __repr__(self) -> str:
        verdict = self.result.verdict
        words = "not judged" if verdict is None else f"verdict {verdict.state}"
        return (
            f"<{type(self).__name__} of {len(self._federation.sites)} sites, {self.result.rounds} rounds, {words}>"
        )

    @property
    def model(self) -> SavedModel:
        """The output model with its scaling, as `fedfair.load_model` returns it from a file.

        Raises:
            PlanError: every site keeps a part of it, so that there is no one model.
        """
        self._check_whole()
        done, cpu = self._simulated, torch.device("cpu")
        module = flat_model(self.plan, self._federation.schema, cpu, self._root)
        module.load(done.model.vector)
        return SavedModel(DescribedModel(done.layout, self._simulated.saved, done.origin), module)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences about what is probably not meant: a model worse than guessing, losses that were replaced."""
        return result_warnings(self.result)

    def evaluate(
        self,
        features: Any = None,
        labels: Any = None,
        *,
        group_sizes: Sequence[float] | None = None,
    ) -> RiskSummary:
        """Return the risks of the output model on records: those held out in the simulation, or others.

        Args:
            features: array (n, columns) or (n, channels, height, width), or a DataFrame with the model's columns,
                as numbers in their own units; the scaling is applied here. None for the records that the
                simulation held out, or trained on where it held out none. Where the plan's table has categories, a
                DataFrame with the raw columns, as they stand in the files.
            labels: (n,), with the values that the training labels had.
            group_sizes: shares above 0 to 1; None takes the plan's.

        Returns:
            `count`, `mean`, `accuracy`, and by group size `worst`, `best` and `disparity`; losses in nats.

        Raises:
            DataError: the records are not such as the model takes.
        """
        sizes = reported_group_sizes(self.plan) if group_sizes is None else tuple(group_sizes)
        losses = self._held_out() if features is None else self._losses(features, labels)
        return summarise_losses(losses.values, losses.correct, sizes)

    def record_losses(self, features: Any, labels: Any) -> np.ndarray:
        """Return the output model's loss of each record, in nats: float64 array (n,); arguments as in `evaluate`.

        Raises:
            DataError: the records are not such as the model takes.
        """
        return self._losses(features, labels).values  # noqa: PD011 - of no table

    def to_frame(self) -> pd.DataFrame:
        """Return the risks of the output model as a table, one row for each split and group size.

        Returns:
            The columns `split`, `records`, `mean`, `accuracy`, `group_size`, `worst`, `best`, `disparity`; losses
            are in the unit of the plan's loss, and groups of too few people have no figures.
        """
        import pandas as pd  # only who wants a table waits for it

        rows = [
            (name, risk.n, risk.mean, risk.accuracy, float(size), group.worst, group.best, group.disparity)
            for name, risk in self.result.splits.items()
            if risk is not None
            for size, group in risk.by_group_size.items()
        ]
        names = ["split", "records", "mean", "accuracy", "group_size", "worst", "best", "disparity"]
        return pd.DataFrame(rows, columns=names)

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw the mean loss of the worst group against its size, before and after training.

        Args:
            axes: of Matplotlib, where to draw; None for a new figure.

        Returns:
            The axes.
        """
        return draw_on(axes, group_size_curves(self._reported))

    def compare(self, *, name: str = "this", **others: SimulatedFederation) -> ModelComparison:
        """Return this model beside others, on the records that all of them held out.

        Args:
            name: what this one is called.
            others: by their names, such as `plain=fedfair.simulate(plan.with_(objective={"tradeoff": 1.0}))`.

        Raises:
            DataError: the runs did not hold out the same records, or two models have one name.
        """
        runs = [(name, self), *others.items()]
        if len(runs) == 1:
            raise DataError("there is no other model to compare with", "give one by its name: compare(plain=...)")
        judged = [JudgedModel(label, run.result, run._held_out()) for label, run in runs]  # noqa: SLF001 - its own class
        return ModelComparison(judged, reported_group_sizes(self.plan))

    def _repr_html_(self) -> str:
        """Return the verdict in words and the picture, for notebooks."""
        shown, verdict = self._reported[0], self.result.verdict
        words = [headline(shown, ()), second_line(shown, ())] + ([] if verdict is None else [*verdict.sentences])
        return for_notebook(self._reported, *map(paragraph, words))

    @property
    def _reported(self) -> tuple[Reported, ...]:
        return labelled({"": self.result})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the output model to a file that `fedfair.load_model` reads; its folder exists.

        Raises:
            DataError: the file cannot be written.
        """
        save_model(Path(path), self._simulated.layout, self._simulated.saved, self._simulated.origin)

    def save_references(self, path: str | os.PathLike[str]) -> None:
        """Write the references of `measure: excess` to a file that a later run may take; its folder exists.

        Raises:
            DataError: the run had none, or the file cannot be written.
        """
        found = self._simulated.references
        if found is None:
            raise DataError("this run measured no excess and has no references", "set objective.measure: excess")
        write_references(Path(path), found())

    def _losses_of_table(self, table: Any, labels: object, label: str) -> Losses:
        """Return the losses on raw columns, which are read as in training: categories, missing values and all."""
        model, answers = self.model, read_labels("evaluate", labels)
        numbers = self._federation.coding.numbers(answers)
        columns = {str(name): table[name] for name in table.columns if name != label}
        values = model.losses({**columns, label: answers.labels})
        places = {value: place for place, value in enumerate(model.classes)}
        predicted = np.array([places[value] for value in model.predict(columns).tolist()], np.int64)
        return Losses(values, numbers, predicted)

    def _held_out(self) -> Losses:
        found = list(self._simulated.losses.values())
        split = "test" if any("test" in site for site in found) else "train"
        held = [site[split] for site in found if split in site]
        return Losses.joined(held)

    def _check_whole(self) -> None:
        if keeps_parameters(self.plan):
            raise PlanError(
                "every site of this simulation keeps a part of the model (training.parameters.keep), so that no "
                "one model answers for other records",
                "take evaluate() without records, which judges each site's held-out records by its own model",
            )

    def _losses(self, features: object, labels: object) -> Losses:
        self._check_whole()
        if labels is None:
            raise DataError("there are features without labels, and a loss needs both", "give evaluate(X, y)")
        data = self.plan.task.data
        if isinstance(data, CsvSource) and data.csv.categorical and hasattr(features, "columns"):
            return self._losses_of_table(features, labels, data.csv.label or "")
        schema, coding = self._federation.schema, self._federation.coding
        raw = read_pair("evaluate", (features, labels), classes=bool(coding.count))
        splits = Splits(dataset_of(raw, coding, schema))
        plan, scaling = without_noise(self.plan), self._simulated.scaling
        if scales_by_ranges(plan):
            splits = scaled_by_ranges(splits)
        model = flat_model(plan, schema, choose_device(plan.training.device), self._root)
        client = TrainingClient(plan, EVALUATED, splits, model)
        if scaling is not None:
            client.apply_scaling(scaling)
        return client.records.losses(self._simulated.model, ("train",))["train"]


def simulate(
    source: Plan | str | os.PathLike[str] | Mapping[str, SiteArrays],
    plan: Plan | str | os.PathLike[str] | None = None,
    *,
    workspace: str | os.PathLike[str] | None = None,
    engine: Engine = "auto",
    workers: int | None = None,
    address: str | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    progress_bar: bool | None = None,
    initial_model: str | os.PathLike[str] | None = None,
    references: str | os.PathLike[str] | None = None,
    model: nn.Module | Callable[..., nn.Module] | None = None,
    **sections: Mapping[str, object] | Section,
) -> SimulatedFederation:
    """Run a whole federation on this machine, with the draws, the sums and the model of the deployed one.

    Arrays need no plan: without one, a linear model protects the worst 30 % as in a new workspace.

    Args:
        source: a plan, the path of one, or the records of each site by its name: `(X, y)`, or a mapping from
            `train`, `validation` and `test` to such pairs. X is an array (records, columns), or (records,
            channels, height, width), uint8 for x / 255, or a DataFrame of numbers. y holds whole numbers or texts.
        plan: the plan for arrays, or its path. Its sites and its columns are those of the arrays.
        workspace: the folder from which a plan's paths start; None for that of the plan, or the present one.
        engine: loop (one site after the other), vectorised (all at once), auto, or ray (many workers).
        workers: of `ray`; None for one on every free processor.
        address: of a running Ray cluster: auto, HOST:PORT or ray://HOST:PORT; None begins one where none runs.
        on_progress: called after every sum.
        progress_bar: whether a bar shows the rounds; None for one in notebooks and interactive sessions.
        initial_model: a file of weights, as `fedfair plan freeze --from` takes it; None goes by the plan.
        references: a file of `save_references`, which the plan names (`objective.reference.run`) or not yet.
        model: in place of the plan's, a module, or what makes one; its file tells no architecture to load.
        sections: of a plan, for arrays without one, each a mapping with the keys of `plan.yaml`.

    Raises:
        PlanError: the plan or a section breaks a rule; the message tells all faults.
        DataError: records are missing, or are no numbers of one shape; the message names the site.
        TrainingError: training left the finite numbers.

    Example:
        >>> import numpy, fedfair
        >>> draw = numpy.random.default_rng(0)
        >>> def clinic(records):
        ...     features = draw.normal(size=(records, 3))
        ...     return features, (features[:, 0] > 0).astype(int)
        >>> sites = {"clinic-a": clinic(80), "clinic-b": clinic(50)}
        >>> outcome = fedfair.simulate(sites, objective={"worst_group_size": 0.2}, training={"rounds": 50})
        >>> outcome.result.verdict.state
        'fine'
    """
    made, root = read_federation(source, plan, workspace, sections)
    made, held, kept = _begun(_with_model(made, model, engine), root, initial_model, references)
    run = partial(simulate_sites, engine=engine, cluster=RayCluster(address, workers))
    with _watched(made.plan, on_progress, progress_bar) as report:
        done = run(made.plan, made.sites, root, on_progress=report, initial=held, references=kept)
    if len(made.schema.input_shape) > 1 and plan is None and isinstance(source, Mapping):
        done = _of_images(done)
    _warn_if_untrained(done.result)
    return SimulatedFederation(made.plan, done.result, done, made, root)


def _with_model(made: ArrayFederation, model: object, engine: Engine) -> ArrayFederation:
    """Return the federation whose plan names the model that a program holds, where it holds one."""
    if model is None:
        return made
    if engine == "ray":
        raise PlanError(
            "the workers of Ray have no model that this program holds",
            "write it to a module that the plan names, or choose another engine",
        )
    if not isinstance(model, nn.Module) and not callable(model):
        raise PlanError(
            f"model is {model!r}, no torch.nn.Module",
            "give one, or what makes one of nothing or of the features' schema",
        )

    def built(schema: FeatureSchema) -> object:
        if isinstance(model, nn.Module):
            return copy.deepcopy(model)
        return model(schema) if inspect.signature(model).parameters else model()

    name = getattr(model, "__name__", type(model).__name__)
    return replace(made, plan=made.plan.with_(task={"model": hold(model, name, built)}))


@contextmanager
def _watched(
    plan: Plan, on_progress: Callable[[Progress], None] | None, wanted: bool | None
) -> Iterator[Callable[[Progress], None]]:
    """Show how far a run is; yields what takes every sum."""
    interactive = error_console.is_jupyter or hasattr(sys, "ps1")
    rounds, size = plan.training.rounds, plan.objective.worst_group_size
    with rounds_bar(rounds, size, error_console, quiet=not (interactive if wanted is None else wanted)) as bar:

        def progressed(progress: Progress) -> None:
            bar.progressed(progress)
            if on_progress is not None:
                on_progress(progress)

        yield progressed


def _warn_if_untrained(result: ResultDocument) -> None:
    """Warn whoever called `simulate` where the run returned the model before round 1."""
    returned = result.model
    if returned is not None and returned.round == 0:
        remedy = "the verdict says what to change; training.output: last returns what training ends with"
        warnings.warn(f"this is {returned.words}; {remedy}", UntrainedModelWarning, stacklevel=3)


def _judged(made: ArrayFederation, references: Path) -> ArrayFederation:
    """Return the federation whose plan takes the references of a file; they may be named already."""
    if given_references(made.plan) is not None:
        return made
    stated = reference_of(made.plan).model_dump(mode="json", exclude_unset=True)
    stated["run"] = read_references(references).digest
    return replace(made, plan=made.plan.with_(objective={"measure": "excess", "reference": stated}))


def _begun(
    made: ArrayFederation,
    root: Path,
    initial_model: str | os.PathLike[str] | None,
    references: str | os.PathLike[str] | None,
) -> tuple[ArrayFederation, StatedWeights | None, Path | None]:
    """Return the federation whose run begins with the weights and references of files, where given, and these."""
    kept = None if references is None else Path(references)
    made = made if kept is None else _judged(made, kept)
    if initial_model is None:
        return made, None, kept
    if made.plan.training.initial is not None:
        raise PlanError(
            "initial_model is given, and the plan names initial weights itself",
            "omit initial_model, or remove plan.initial.yaml beside the plan",
        )
    begun = begin_with(made.plan, made.schema, root, Path(initial_model))
    return replace(made, plan=begun.plan), begun.held, kept


def _of_images(done: SimulationOutcome) -> SimulationOutcome:
    """Return the outcome with a model of images, which no table describes: its records are arrays."""
    described = done.origin.description.model_copy(update={"columns": (), "source": f"{IN_MEMORY}:images"})
    return replace(done, origin=replace(done.origin, description=described))
