"""Every option of a plan gives, sharded over workers, the result of the loop, or is refused with a remedy.

Tolerances: in fp64 the order of additions moves a sum by at most (n - 1) u sum |addend|, u = 2^-53, n <= 60; over
the few rounds here that stays below 1e-9. In fp32, u = 2^-24, below 1e-3. In half widths (bf16, fp16) a parameter
that moves by one rounding of fp32 may fall on the other side of a rounding of 2^-9, in every layer.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np
import pytest

from fedfair.aggregation.distributed_dp import distributed_dp
from fedfair.aggregation.model_layout import Layout
from fedfair.errors import FedfairError
from fedfair.ids import ParticipantId
from fedfair.plan.algorithms import ALGORITHMS, AlgorithmName, OptionsSection
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.privacy import CollaboratorLevelSection, SampleLevelSection
from fedfair.plan.schema import Plan
from fedfair.plan.sections import EvaluationSection, ObjectiveSection, SecureAggregationSection, TrainingSection
from fedfair.plan.task import TaskSection
from fedfair.run.reference_file import write_references
from fedfair.simulation.all_clients import SimulatedClients
from fedfair.simulation.backend import Engine, chosen_engine
from fedfair.simulation.sharded.clients import ShardedClients
from fedfair.simulation.sharded.on_ray import RayEngine, part_of
from fedfair.simulation.sharded.shard import ShardTerms
from fedfair.simulation.sharded.sharding import shard_collaborators
from fedfair.simulation.simulate import SimulationOutcome, _begun, _simulated, simulate_sites
from fedfair.tables.dataset import Dataset, Splits
from fedfair.tables.source import load_federation
from tests import plans
from tests.simulation import other_tasks
from tests.simulation.sharded.worker_kit import LocalWorkers

Sites = Mapping[ParticipantId, Splits]
Sections = Mapping[str, Mapping[str, object]]

COUNTS = (9, 6, 14, 8, 11, 20, 5, 12, 7)
NAMES = tuple(f"site-{k}" for k in range(len(COUNTS)))
LOSING = (3, 4, 9, 14, 22, 31)
"""The questions at which a worker is lost."""

NOISED = {"privacy": {"sample_level": {"noise_multiplier": 1.0}}}
WHOLE: Sections = {
    "secure_aggregation": {"mode": "semi-honest"},
    "federation": {"min_collaborators": len(COUNTS)},
    "training": {"weights": "uniform", "output": "last"},
    "privacy": {"collaborator_level": {"noise_multiplier": 1.0, "clip": 0.5}},
}


def noised(**keys: object) -> Sections:
    return {"privacy": {"sample_level": {"noise_multiplier": 1.0, **keys}}}


def whole(**keys: object) -> Sections:
    return {**WHOLE, "privacy": {"collaborator_level": {"noise_multiplier": 1.0, "clip": 0.5, **keys}}}


def algorithm(name: str, **options: object) -> Sections:
    return {"training": {"algorithm": name, "options": options}}


REFERENCE = {"rounds": 9}
SCALED = {"task": {"standardize": "secure"}}
VARIATES = {"control_variates": True, "local_steps": 2}

OPTIONS: Mapping[str, Sections] = {
    "training.algorithm": {"training": {"algorithm": "fedavg"}},
    "training.rounds": {"training": {"rounds": 7}},
    "training.local_steps": {"training": {"local_steps": 3}},
    "training.local_epochs": {"training": {"local_epochs": 2}},
    "training.resample": {"training": {"resample": "round", "local_steps": 2}},
    "training.control_variates": {"training": VARIATES},
    "training.batch_size": {"training": {"batch_size": "full"}},
    "training.learning_rate": {"training": {"learning_rate": 0.3}},
    "training.threshold_learning_rate": {"training": {"threshold_learning_rate": 0.2}},
    "training.schedule": {"training": {"schedule": "cosine"}},
    "training.warm_up": {"training": {"schedule": "linear", "warm_up": 0.4}},
    "training.server_optimizer": {"training": {"server_optimizer": {"name": "adam"}}},
    "training.threshold_init": {"training": {"threshold_init": "quantile"}},
    "training.weights": {"training": {"weights": "uniform"}},
    "training.output": {"training": {"output": "tail"}},
    "training.weight_decay": {"training": {"weight_decay": 0.1}},
    "training.patience": {
        "training": {"patience": 1, "output": "best", "rounds": 7, "learning_rate": 30.0},
        "evaluation": {"every": 1},
    },
    "training.parameters": {
        "training": {"parameters": {"train": ["output.*"], "keep": ["hidden1.bias"]}},
        "task": {"model": {"name": "mlp", "hidden": [3]}},
    },
    "training.seed": {"training": {"seed": 77}},
    "training.precision": {"training": {"precision": "fp32"}},
    "options.adversary_learning_rate": algorithm("afl", adversary_learning_rate=0.1),
    "options.adversary_interval": algorithm("afl", adversary_interval=2),
    "options.drawn_collaborators": algorithm("drfa", drawn_collaborators=3),
    "options.loss_power": algorithm("qffl", loss_power=2.0),
    "options.worst_share": algorithm("deltafl", worst_share=0.4),
    "options.weight_range": algorithm("fedmgda", weight_range=0.1),
    "options.server_learning_rate": algorithm("fedmgda", server_learning_rate=0.5),
    "objective.worst_group_size": {"objective": {"worst_group_size": 0.5}},
    "objective.tradeoff": {"objective": {"tradeoff": 0.9}},
    "objective.smoothing": {"objective": {"smoothing": {"name": "zang", "gamma": 0.1}}},
    "objective.loss_bound": {"objective": {"loss_bound": 3.0}},
    "objective.measure": {"objective": {"measure": "excess"}, **SCALED},
    "objective.reference": {"objective": {"measure": "excess", "reference": REFERENCE}, **SCALED},
    "task.standardize": {"task": {"standardize": "secure"}},
    "task.model": {"task": {"model": {"name": "linear", "init": "random"}}},
    "secure_aggregation.mode": {"secure_aggregation": {"mode": "malicious"}},
    "secure_aggregation.clip": {"secure_aggregation": {"mode": "semi-honest", "clip": 0.001}},
    "secure_aggregation.max_clip": {"secure_aggregation": {"mode": "semi-honest", "max_clip": 0.001}},
    "secure_aggregation.ring_bits": {"secure_aggregation": {"mode": "semi-honest", "ring_bits": 20}},
    "evaluation.every": {"evaluation": {"every": 1}},
    "evaluation.group_sizes": {"evaluation": {"group_sizes": [0.1, 0.6]}},
    "evaluation.method": {"evaluation": {"method": "exact"}},
    "evaluation.min_group": {"evaluation": {"min_group": 3}},
    "evaluation.site_means": {"evaluation": {"site_means": True, "min_group": 1}},
    "evaluation.site_weights": {"evaluation": {"site_means": True, "site_weights": dict.fromkeys(NAMES, 2.0)}},
    "evaluation.scores": {"evaluation": {"scores": True}},
    "evaluation.bins": {"evaluation": {"bins": 64}},
    "evaluation.calibration": {"evaluation": {"scores": True, "calibration": "none"}},
    "evaluation.sets": {"evaluation": {"scores": True, "sets": {"group_size": 0.5, "missed": 0.4}}},
    "evaluation.slices": {
        "evaluation": {"slices": {"bins": 3, "outcomes": True}},
        "secure_aggregation": {"mode": "malicious"},
    },
    "evaluation.release_audit": {
        "task": {"test_fraction": 0.3},
        "evaluation": {"slices": {"bins": 3}, "release_audit": {"worst_slices": 2}},
        "secure_aggregation": {"mode": "malicious"},
    },
    "evaluation.loss_range": {"evaluation": {"loss_range": 2.0}},
    "sample_level.noise_multiplier": noised(noise_multiplier=0.5),
    "sample_level.clip": noised(clip=0.2),
    "sample_level.clipping": noised(clipping="joint"),
    "sample_level.threshold_scale": noised(clipping="joint", threshold_scale=2.0),
    "sample_level.delta": noised(delta=1e-6),
    "sample_level.gradients": noised(gradients="hooks"),
    "sample_level.evaluation_noise_multiplier": noised(evaluation_noise_multiplier=3.0),
    "sample_level.standardisation_noise_multiplier": {
        **noised(standardisation_noise_multiplier=3.0),
        "task": {"standardize": "none"},
    },
    "collaborator_level.noise_multiplier": whole(noise_multiplier=0.5),
    "collaborator_level.clip": whole(clip=0.1),
    "collaborator_level.delta": whole(delta=1e-6),
}

ELSEWHERE = {
    "training.options": "each key of it has a row of its own",
    "training.initial": "where a run begins: the model before round 1 is the asker's",
    "training.device": "where a step is computed, not which",
    "training.compile": "how a step is computed; nothing of it is the asker's",
    "options.group_column": "test_known_groups_are_sharded, since it needs a table",
    "options.divergence": "of an algorithm that is refused",
    "options.best_response": "of algorithms that are refused", "objective.name": "there is one",
    "task.data": "records are read before they are sharded",
    "task.partition": "records are divided before they are sharded",
    "task.survey": "test_every_loss_is_sharded, since records that are read from a file are described",
    "task.test_fraction": "as task.partition", "task.test_fold": "as task.partition",
    "task.validation_fraction": "as task.partition", "task.loss": "test_every_loss_is_sharded",
    "task.input_shape": "as task.data", "task.classes": "as task.data",
    "secure_aggregation.colluders": "nothing is masked in a simulation",
    "secure_aggregation.key_agreement": "as colluders", "secure_aggregation.most_records": "as colluders",
    "secure_aggregation.check_sums": "as colluders", "secure_aggregation.neighbours": "as colluders",
}  # fmt: skip

SECTIONS = {
    "training": TrainingSection, "options": OptionsSection, "objective": ObjectiveSection, "task": TaskSection,
    "secure_aggregation": SecureAggregationSection, "evaluation": EvaluationSection,
    "sample_level": SampleLevelSection, "collaborator_level": CollaboratorLevelSection,
}  # fmt: skip

RELATIVE = {"fp64": 1e-9, "fp32": 1e-3, "bf16": 0.05, "fp16": 0.05}


def test_every_option_of_a_plan_has_a_row() -> None:
    there = {f"{section}.{key}" for section, kind in SECTIONS.items() for key in kind.model_fields}
    assert there == OPTIONS.keys() | ELSEWHERE.keys()
    assert not OPTIONS.keys() & ELSEWHERE.keys()


def some(count: int, seed: int) -> Dataset:
    source = np.random.default_rng(seed)
    labels = source.integers(0, 2, count)
    features = source.normal(size=(count, 4)) + 0.5 * labels[:, None] + np.arange(4)
    return Dataset(features, labels, FeatureSchema((4,), 2, tuple(range(4))))


def sites_of() -> Sites:
    return {
        ParticipantId(name): Splits(some(count, k), None, some(k + 1, 100 + k) if k % 2 else None)
        for k, (name, count) in enumerate(zip(NAMES, COUNTS, strict=True))
    }


def plan_of(sections: Sections) -> Plan:
    usual: Sections = {
        "secure_aggregation": {"mode": "off"},
        "task": {"model": {"name": "mlp", "hidden": (4,)}, "standardize": "none"},
        "objective": {"worst_group_size": 0.3, "tradeoff": 0.1},
        "training": {"rounds": 5, "batch_size": 4, "learning_rate": 0.02, "precision": "fp64", "device": "cpu"},
        "evaluation": {"every": 2, "group_sizes": [0.3], "bins": 16},
    }
    given = {name: {**usual.get(name, {}), **sections.get(name, {})} for name in {**usual, **sections}}
    return plans.parsed(NAMES, **given)


class LocalMachines:
    """Shards cohorts over workers of this process, as `RayEngine` does to those of a cluster."""

    def __init__(self, workers: int, losing: tuple[int, ...], root: Path) -> None:
        self._workers, self._losing, self._root = workers, losing, root
        self.lost = 0

    @contextmanager
    def cohort(self, plan: Plan, sites: Sites, layout: Layout, *, vectorised: bool) -> Iterator[ShardedClients]:
        names = list(sites)
        sharding = shard_collaborators(len(names), self._workers, vectorised=vectorised)
        count = len(sharding.shards)
        workers = LocalWorkers(count, self._losing, after=True)
        parts = [part_of(sites, [names[member] for member in sharding.members(worker)]) for worker in range(count)]
        terms = ShardTerms(plan, vectorised, self._root)
        yield ShardedClients(workers, terms, sharding, names, parts, distributed_dp(plan, layout.dimension))
        self.lost += len(workers.lost)


def sharded(
    plan: Plan,
    sites: Sites,
    root: Path,
    workers: int,
    losing: tuple[int, ...] = (),
    references: Path | None = None,
) -> SimulationOutcome:
    machines = LocalMachines(workers, losing, root)
    engine = chosen_engine(plan, "ray")
    with ExitStack() as ends:
        clients = SimulatedClients(plan, sites, root, engine, cast(RayEngine, machines), ends)
        outcome = _simulated(clients, _begun(clients, None, references), None, asks_family=True)
    assert bool(machines.lost) == bool(losing)
    return outcome


def figures(outcome: SimulationOutcome) -> Any:  # noqa: ANN401 - JSON
    """Return everything that a result says but how long it took, who computed it, and bits."""
    return outcome.result.model_dump(
        exclude={"timing": True, "traffic": True, "engine": True, "model": {"digest"}, "references": {"digest"}}
    )


def agree(found: Any, expected: Any, relative: float, place: str = "") -> None:  # noqa: ANN401 - JSON
    """Compare two results value by value."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), place
        for key, value in expected.items():
            agree(found[key], value, relative, f"{place}.{key}")
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected), place
        for number, (one, other) in enumerate(zip(found, expected, strict=True)):
            agree(one, other, relative, f"{place}[{number}]")
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=relative, abs=relative, nan_ok=True), place
    else:
        assert found == expected, place


def check_sharded(plan: Plan, sites: Sites, root: Path = Path(), *, bits: bool = True) -> None:
    """Compare the loop and several workers, of which some are lost; and one worker where its bits matter."""
    relative = RELATIVE[plan.training.precision]
    loop, several = simulate_sites(plan, sites, root, engine="loop"), sharded(plan, sites, root, 3, LOSING)
    np.testing.assert_allclose(several.model.vector, loop.model.vector, rtol=0, atol=relative)
    agree(figures(several), figures(loop), relative)
    assert several.origin == loop.origin
    assert several.survey_faults == loop.survey_faults
    if bits:
        # Neither the number of workers nor the loss of some changes a bit.
        one = sharded(plan, sites, root, 1)
        assert several.model.vector.tobytes() == one.model.vector.tobytes()
        assert figures(several) == figures(one)


@pytest.mark.slow
@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_is_sharded(option: str) -> None:
    plan = plan_of(OPTIONS[option])
    section, key = option.split(".")
    default = plan_of({})
    if section in {"training", "objective", "task", "evaluation"}:
        # The row tests what it says.
        assert getattr(getattr(plan, section), key) != getattr(getattr(default, section), key)
    # Bits depend on how sums are added: by every algorithm, precision and loss, which are tried below, and noise.
    check_sharded(plan, sites_of(), bits=section in {"sample_level", "collaborator_level"})


@pytest.mark.slow
def test_references_of_an_earlier_run_are_sharded(tmp_path: Path) -> None:
    sites, file = sites_of(), tmp_path / "references.safetensors"
    trained = sharded(plan_of(OPTIONS["objective.reference"]), sites, Path(), 3, LOSING)
    assert trained.references is not None
    write_references(file, trained.references())
    digest = trained.references().digest
    plan = plan_of({"objective": {"measure": "excess", "reference": {"run": digest}}, **SCALED})
    loop = simulate_sites(plan, sites, Path(), engine="loop", references=file)
    several = sharded(plan, sites, Path(), 3, LOSING, references=file)
    np.testing.assert_allclose(several.model.vector, loop.model.vector, rtol=0, atol=1e-9)
    agree(figures(several), figures(loop), 1e-9)
    assert several.model.vector.tobytes() == trained.model.vector.tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("name", get_args(AlgorithmName))
def test_every_algorithm_is_sharded_or_refused(name: AlgorithmName) -> None:
    plan = plan_of({"training": {"algorithm": name}})
    if not ALGORITHMS[name].centralised:
        check_sharded(plan, sites_of())
        return
    with pytest.raises(FedfairError, match=f"{name} trains on the records of all in one place") as refused:
        chosen_engine(plan, "ray")
    assert "--engine auto or loop" in refused.value.remedy


@pytest.mark.slow
@pytest.mark.parametrize("gradients", get_args(SampleLevelSection.model_fields["gradients"].annotation))
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_every_way_to_the_gradients_of_single_records_is_sharded(gradients: str, precision: str) -> None:
    if (gradients, precision) == ("ghost", "bf16"):
        pytest.skip("no plan may ask for it")
    check_sharded(plan_of({**noised(gradients=gradients), "training": {"precision": precision}}), sites_of())


@pytest.mark.slow
@pytest.mark.parametrize("precision", get_args(TrainingSection.model_fields["precision"].annotation))
def test_every_precision_is_sharded(precision: str) -> None:
    check_sharded(plan_of({"training": {"precision": precision, "local_steps": 2}}), sites_of())


@pytest.mark.slow
@pytest.mark.parametrize("kept", [False, True], ids=["resampled", "variates"])
@pytest.mark.parametrize("name", other_tasks.TASKS)
def test_every_loss_is_sharded(name: str, kept: bool, tmp_path: Path) -> None:
    other_tasks.write_table(tmp_path)
    more = {"survey": True} if kept else {}
    plan = other_tasks.plan_of(
        name, task=more, training={"rounds": 3, "device": "cpu", "batch_size": 8, **(VARIATES if kept else {})},
        secure_aggregation={"mode": "malicious" if kept else "off"},
    )  # fmt: skip
    check_sharded(plan, load_federation(plan, tmp_path), tmp_path)


def test_known_groups_are_sharded_and_the_result_names_its_engine() -> None:
    check_sharded(plan_of(algorithm("fedminmax")), sites_of())
    plan, sites = plan_of({}), sites_of()
    engines: tuple[Engine, ...] = ("loop", "vectorised", "auto")
    told = [simulate_sites(plan, sites, Path(), engine=engine).result.engine for engine in engines]
    assert told == ["loop", "vectorised", "vectorised"]
    assert sharded(plan, sites, Path(), 2).result.engine == "ray"
