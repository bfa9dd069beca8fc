"""From an OpenFL workspace to one of fedfair: what is written runs, the rest is told, no foreign code is run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from typer.testing import CliRunner

from fedfair.cli.commands import app
from fedfair.errors import DataError, PlanError
from fedfair.migration.findings import Finding, FindingKind, as_markdown
from fedfair.migration.openfl_workspace import Migration, migrate, write
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.loading import load_plan
from fedfair.plan.module_code import load_callable
from fedfair.policy.site_config import load_site_config
from fedfair.tables.source import load_federation
from tests.migration.openfl_samples import OLD, OLD_PLAN, PLAN, RUNNER, SAMPLES, WHOLE, WRAPPED, Files, write_files


def migrated(folder: Path, files: Files, name: str | None = None) -> Migration:
    return migrate(write_files(folder / "old", files), name, None)


def found(migration: Migration, key: str) -> Finding:
    return next(finding for finding in migration.findings if finding.key == key)


def built(folder: Path, migration: Migration, shape: tuple[int, ...]) -> torch.nn.Module:
    """Return the model of a migration, after it was written."""
    write(migration, folder / "new")
    reference = load_plan(folder / "new" / "plan" / "plan.yaml").task.model
    model = load_callable(str(reference), folder / "new")(FeatureSchema(shape, 2))
    assert isinstance(model, torch.nn.Module)
    return model


def test_a_whole_workspace_is_checked_simulated_and_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = write_files(tmp_path / "hearts", WHOLE)
    monkeypatch.chdir(tmp_path)
    ran = CliRunner().invoke(app, ["migrate", "openfl", str(old), "--output", "new"])
    assert ran.exit_code == 0, ran.output
    assert "data of" not in ran.output
    new = tmp_path / "new"
    checked = CliRunner().invoke(app, ["plan", "check", "-p", str(new / "plan" / "plan.yaml")])
    assert checked.exit_code == 0, checked.output
    draw = np.random.default_rng(3)
    features = draw.normal(size=(200, 4))
    table = np.column_stack([features, features[:, 0] > 0])
    np.savetxt(new / "table.csv", table, delimiter=",", header="a,b,c,d,y", comments="")
    path = new / "plan" / "plan.yaml"
    path.write_text(path.read_text().replace("  # partition:", "  partition:").replace("rounds: 4", "rounds: 40"))
    ran = CliRunner().invoke(app, ["simulate", "-p", str(path), "--output", "result.json", "--quiet"])
    assert ran.exit_code == 0, ran.output
    assert json.loads(Path("result.json").read_text())["test"]["accuracy"] > 0.8
    assert not (tmp_path / "RAN").exists()


def test_the_plan_has_the_values_of_the_old_one(tmp_path: Path) -> None:
    migration = migrated(tmp_path, WHOLE, "hearts")
    write(migration, tmp_path / "new")
    plan = load_plan(tmp_path / "new" / "plan" / "plan.yaml")
    assert plan.federation.collaborators == ("clinic-a", "clinic-b")
    assert (plan.federation.aggregator.host, plan.federation.aggregator.port) == ("hub.example.org", 50051)
    assert (plan.federation.min_collaborators, plan.federation.round_deadline_seconds) == (2, 90)
    training = plan.training
    assert (training.algorithm, training.rounds, training.local_epochs, training.batch_size) == (
        "fedavg",
        4,
        2,
        16,
    )
    assert (training.learning_rate, training.schedule) == (0.05, "constant")
    assert training.server_optimizer is not None
    assert training.server_optimizer.name == "sgd"
    assert (plan.task.input_shape, plan.task.classes) == ((4,), 2)
    assert (plan.task.data, plan.task.model) == ("hearts_loader:records", "hearts_model:build")
    assert plan.secure_aggregation.mode == "malicious"
    site = load_site_config(tmp_path / "new" / "sites" / "clinic-a" / "collaborator.yaml")
    assert (site.collaborator, site.data.root, site.device) == ("clinic-a", "/srv/hearts", "cpu")
    assert site.policy.allow_module_code is False


def test_an_old_workspace_becomes_a_model_and_a_loader_that_refuses_in_words(tmp_path: Path) -> None:
    migration = migrated(tmp_path, OLD, "pictures-of-old")
    model = built(tmp_path, migration, (3, 8, 8))
    assert model.eval()(torch.zeros(2, 3, 8, 8)).shape == (2, 2)
    plan = load_plan(tmp_path / "new" / "plan" / "plan.yaml")
    assert plan.federation.collaborators == ("one", "two", "collaborator1")
    assert plan.federation.min_collaborators == 2
    assert plan.task.partition is not None
    assert (plan.task.input_shape, plan.task.classes) == (None, None)
    assert (plan.training.local_epochs, plan.training.batch_size) == (1, 4)
    assert plan.training.server_optimizer is None
    with pytest.raises(
        DataError, match=r"pictures_of_old_loader.py: the loader of .* is not written yet: complete"
    ):
        load_federation(plan, tmp_path / "new")


def test_a_runner_that_holds_its_model_gets_a_forward_pass(tmp_path: Path) -> None:
    model = built(tmp_path, migrated(tmp_path, WRAPPED, "wrapped"), (4,))
    assert model(torch.zeros(5, 4)).shape == (5, 2)


def test_the_code_keeps_its_comments_and_loses_what_is_not_the_model(tmp_path: Path) -> None:
    text = migrated(tmp_path, WHOLE, "hearts").files["src/hearts_model.py"]
    assert "# The first layer reads every column." in text
    assert "class Squeeze" in text
    assert "Narrow = Squeeze" in text
    for gone in ("openfl", "optim", "loss_fn", "manual_seed", "print", "Unused", "RAN", "Metric", "Plain steps"):
        assert gone not in text.partition('"""\n')[2].partition('"""\n')[2], gone


@pytest.mark.parametrize("name", SAMPLES)
def test_every_key_of_a_plan_and_of_what_it_includes_is_in_the_list_once(tmp_path: Path, name: str) -> None:
    files = SAMPLES[name]
    keys = {finding.key for finding in migrated(tmp_path, files).findings}

    def leaves(value: object, path: str) -> list[str]:
        if isinstance(value, dict) and value:
            return [leaf for key, inner in value.items() for leaf in leaves(inner, f"{path}.{key}")]
        if isinstance(value, list) and any(isinstance(item, dict) for item in value):
            return [leaf for index, inner in enumerate(value) for leaf in leaves(inner, f"{path}.{index}")]
        return [path]

    plan = yaml.safe_load(files["plan/plan.yaml"])
    stated = [leaf for section, value in plan.items() for leaf in leaves(value, section)]
    included = [
        leaf
        for section, value in plan.items()
        if "defaults" in value
        for key, inner in yaml.safe_load(files[value["defaults"]]).items()
        if key == "settings" or key not in value
        for leaf in leaves(inner, f"{section}.{key}")
    ]
    assert set(stated) | set(included) <= keys
    listed = [finding.key for finding in migrated(tmp_path, files).findings if finding.key in {*stated, *included}]
    assert len(listed) == len(set(listed))


@pytest.mark.parametrize(
    ("key", "kind", "says"),
    [
        ("something_new.switch", FindingKind.BY_HAND, "does not know the key"),
        ("collaborator.settings.opt_treatment", FindingKind.NO_COUNTERPART, "no state of an optimiser"),
        ("network.settings.tls", FindingKind.NO_COUNTERPART, "cannot be switched off"),
        ("network.settings.disable_client_auth", FindingKind.NO_COUNTERPART, "needs a certificate"),
        ("network.settings.agg_addr", FindingKind.BY_HAND, "under which sites reach"),
        ("tasks.aggregated_model_validation.kwargs.metrics", FindingKind.NO_COUNTERPART, "from sums"),
        ("tasks.aggregated_model_validation.kwargs.batch_size", FindingKind.BUILT_IN, "read all records"),
        ("tasks.aggregated_model_validation.kwargs.smooth", FindingKind.NO_COUNTERPART, "your own"),
        ("assigner.settings.task_groups.0.percentage", FindingKind.NO_COUNTERPART, "all sites train"),
        ("aggregator.settings.log_metric_callback.template", FindingKind.NO_COUNTERPART, "--track"),
        ("data_loader.template", FindingKind.BY_HAND, "complete records"),
        ("task_runner.settings.kernels", FindingKind.CARRIED_OVER, "an argument"),
        ("half_loss", FindingKind.NO_COUNTERPART, "another loss is not"),
        ("PictureRunner.validate", FindingKind.NO_COUNTERPART, "loop is not carried over"),
        ("Adam", FindingKind.NO_COUNTERPART, "adaptive steps"),
        ("input_shape", FindingKind.BY_HAND, "state task.input_shape"),
        ("Shards", FindingKind.BY_HAND, "number of a shard"),
    ],
)
def test_what_has_no_counterpart_says_what_to_do(tmp_path: Path, key: str, kind: FindingKind, says: str) -> None:
    finding = found(migrated(tmp_path, OLD), key)
    assert finding.kind == kind
    assert says in finding.words
    path, _, line = finding.place.partition(":")
    assert key.rpartition(".")[2].rpartition("_")[0] in OLD[path].splitlines()[int(line) - 1] or path.endswith(
        "told.py"
    )


def test_the_model_is_told_what_training_or_evaluation_would_not_expect(tmp_path: Path) -> None:
    words = " ".join(
        finding.words for finding in migrated(tmp_path, OLD).findings if finding.key == "PictureRunner"
    )
    for expected in ("softmax", "training=self.training", "BatchNorm"):
        assert expected in words


def test_a_switch_that_yaml_1_1_takes_as_on_is_on(tmp_path: Path) -> None:
    assert found(migrated(tmp_path, WHOLE), "aggregator.settings.secure_aggregation").words.startswith(
        "sums are masked un"
    )


def test_a_file_that_is_not_in_the_workspace_is_told_and_found_in_the_folder_that_is_given(tmp_path: Path) -> None:
    files = {name: text for name, text in WHOLE.items() if "defaults" not in name}
    old = write_files(tmp_path / "old", files)
    missing = next(one for one in migrate(old, None, None).findings if one.key == "tasks.defaults")
    assert missing.kind == FindingKind.BY_HAND
    assert "--defaults" in missing.words
    installed = write_files(tmp_path / "openfl-workspace" / "workspace", WHOLE)
    given = migrate(old, None, installed)
    assert next(one for one in given.findings if one.key == "tasks.defaults").kind == FindingKind.CARRIED_OVER
    assert found(given, "network.settings.hash_salt").place.endswith("plan/defaults/network.yaml:5")


def changed(old: str, new: str, file: str = "plan/plan.yaml", files: Files = WHOLE) -> Files:
    assert old in files[file]
    return {**files, file: files[file].replace(old, new)}


KERAS = RUNNER.replace("PyTorchTaskRunner", "KerasTaskRunner")
PIPELINE = """\
compression_pipeline:
  template: openfl.pipelines.KCPipeline
  settings: {n_clusters: 6}
"""

BAD = {
    "no plan": ({"plan/data.yaml": "one,1\n"}, r"no OpenFL workspace: it has no plan/plan.yaml"),
    "YAML": (changed("rounds_to_train: 4", "rounds_to_train: [4"), r"plan/plan.yaml:\d+: not YAML"),
    "an anchor": (changed("rounds_to_train: 4", "rounds_to_train: &a 4"), r"plan/plan.yaml:7: anchors"),
    "another file": ({"plan/plan.yaml": "services: {web: 1}\n"}, r"no section aggregator, so it is no plan of Op"),
    "no number": (changed("rounds_to_train: 4", "rounds_to_train: many"), r"plan.yaml:7: .*rounds_to_train is 'm"),
    "no rounds": (changed("rounds_to_train: 4", "rounds_to_train: 0"), r"plan.yaml:7: .* is 0"),
    "a port": (changed("agg_port: 50051", "agg_port: 99999999"), r"federation.aggregator.port: must be <= 65535"),
    "settings": (changed("settings: {hidden: 6, device: cpu}", "settings: 7"), r"settings is not a mapping"),
    "a section": (changed(PIPELINE, "compression_pipeline: 7\n"), r"compression_pipeline is not a mapping"),
    "Keras": ({**WHOLE, "src/runner.py": KERAS}, r"src/runner.py:\d+: HeartRunner is a KerasTaskRunner: .* Keras"),
    "no runner": (changed("(PyTorchTaskRunner)", "(object)", "src/runner.py"), r"from object, not from PyT"),
    "GaNDLF": (changed("src.runner.HeartRunner", "openfl.federated.task.GaNDLFTaskRunner"), r":17: .* GaNDLF"),
    "of OpenFL": (
        changed("src.runner.HeartRunner", "openfl.federated.CoreTaskRunner"),
        r"a class of OpenFL itself",
    ),
    "Flower": ({**WHOLE, "plan/plan.yaml": PLAN + "connector: {a: {}}\n"}, r"plan.yaml:\d+: .* another framework"),
    "a workflow": (changed("compression_pipeline", "federated_flow"), r"OpenFL's workflow interface"),
    "unknown module": (changed("src.runner", "src.walker"), r"plan.yaml:17: .* no file src/walker.py"),
    "unknown class": (changed("HeartRunner", "Heart"), r"src/runner.py has no class Heart"),
    "no template": (changed("template: src.runner.HeartRunner", "template: 7"), r"is 7, not the name of a class"),
    "not Python": (
        changed("def forward(self, x):", "def forward(self, x)", "src/runner.py"),
        r"py:\d+: not Python",
    ),
    "collaborators": ({**WHOLE, "plan/cols.yaml": "collaborators: 7\n"}, r"plan/cols.yaml:1: has no list"),
    "one name twice": ({**WHOLE, "plan/cols.yaml": "collaborators: [a-b, A_B]\n"}, r"'A_B' becomes 'a-b'"),
    "data": ({**WHOLE, "plan/data.yaml": "one: 1\n"}, r"plan/data.yaml:1: 'one: 1' is not name,path"),
    "outside": (changed("plan/defaults/network.yaml", "../secrets.yaml"), r"leads out of the workspace"),
    "a share": (
        changed("percent_collaborators_needed: 0.5", "percent_collaborators_needed: 50", files=OLD),
        r"is 50",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_clear_error_and_nothing_is_written(tmp_path: Path, name: str) -> None:
    files, says = BAD[name]
    old = write_files(tmp_path / "old", files)
    ran = CliRunner().invoke(app, ["migrate", "openfl", str(old), "--output", str(tmp_path / "new" / "deeper")])
    assert isinstance(ran.exception, PlanError)
    with pytest.raises(PlanError, match=says) as fault:
        migrate(old, None, None)
    assert fault.value.remedy or "->" in fault.value.message
    assert {path.name for path in tmp_path.iterdir()} == {"old"}


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    old = write_files(tmp_path / "old", WHOLE)
    taken = write_files(tmp_path / "new", {"mine": "1"})
    with pytest.raises(PlanError, match="exists and is not an empty folder; nothing was written"):
        write(migrate(old, None, None), taken)
    assert [path.name for path in taken.iterdir()] == ["mine"]


def test_a_failure_while_writing_leaves_nothing(tmp_path: Path) -> None:
    migration = migrated(tmp_path, WHOLE)
    broken = Migration(
        {**migration.files, "plan/plan.yaml/inner": "a file cannot be a folder"}, migration.findings
    )
    with pytest.raises(OSError, match="plan"):
        write(broken, tmp_path / "new")
    assert {path.name for path in tmp_path.iterdir()} == {"old"}


STATE_DICT = "def state_dict(self):\n        return {}\n\n    def forward"
TENSORS = "from openfl.databases import TensorDB\nWIDTH = TensorDB(3)"
SIZE = "self.data_loader.get_train_data_size()\n        return self.last("

UNFIT = {
    "a placeholder": ("self.first = nn.Linear(columns, hidden)", "self.first = None", "placeholder"),
    "OpenFL's state": ("return self.last(", SIZE, "reads self"),
    "OpenFL's code": ("WIDTH = 3", TENSORS, "is no part of the model"),
    "a raise": ("WIDTH = 3", "WIDTH = 3\nraise NotImplementedError('fill in')", "was not filled in"),
    "own weights": ("def forward", STATE_DICT, "which weights are shared"),
    "an argument": ("hidden, device", "hidden, depth, device", "an argument depth"),
    "a module": (
        "from src.parts import Squeeze as",
        "from src import parts\nNarrow = parts.Squeeze #",
        "as a whole",
    ),
    "no constructor": ("super().__init__(device=device, **kwargs)", "pass", "does not call the constructor"),
}


@pytest.mark.parametrize("name", UNFIT)
def test_a_model_that_cannot_travel_refuses_in_words_until_it_is_written(tmp_path: Path, name: str) -> None:
    before, after, says = UNFIT[name]
    migration = migrated(tmp_path, changed(before, after, "src/runner.py"), f"unfit-{[*UNFIT].index(name)}")
    told = [one for one in migration.findings if one.kind == FindingKind.BY_HAND and says in one.words]
    assert told, [one.words for one in migration.findings if one.kind == FindingKind.BY_HAND]
    assert told[0].place.startswith("src/runner.py:")
    write(migration, tmp_path / "new")
    plan = tmp_path / "new" / "plan" / "plan.yaml"
    ran = CliRunner().invoke(app, ["plan", "digest", "-p", str(plan)])
    assert isinstance(ran.exception, PlanError)
    assert "is not written yet: complete `build`" in str(ran.exception)
    assert CliRunner().invoke(app, ["plan", "check", "-p", str(plan)]).exit_code == 0


def test_statements_in_one_line_are_taken_apart(tmp_path: Path) -> None:
    text = RUNNER.replace("self.to(device)", "self.to(device); self.width = WIDTH; self.optimizer = None")
    migration = migrated(tmp_path, {**WHOLE, "src/runner.py": text}, "one-line")
    assert built(tmp_path, migration, (4,))(torch.zeros(2, 4)).shape == (2, 2)
    assert "self.width = WIDTH" in migration.files["src/one_line_model.py"]
    assert "optimizer" not in migration.files["src/one_line_model.py"]


def test_code_that_is_nested_too_deeply_is_refused_in_words(tmp_path: Path) -> None:
    deep = "self.width = " + "-" * 2500 + "1\n        self.first"
    with pytest.raises(PlanError, match=r"nested too deeply|not Python"):
        migrated(tmp_path, changed("self.first", deep, "src/runner.py"))


def test_names_become_names_of_certificates_and_stay_texts(tmp_path: Path) -> None:
    files = {**WHOLE, "plan/cols.yaml": "collaborators: [1, null, Klinik Süd]\n", "plan/data.yaml": ""}
    with pytest.raises(PlanError, match="None is no name of a collaborator"):
        migrated(tmp_path, files)
    files = {**files, "plan/cols.yaml": "collaborators: [1, 'null', Klinik Süd, aggregator]\n"}
    write(migrated(tmp_path, files), tmp_path / "new")
    names = load_plan(tmp_path / "new" / "plan" / "plan.yaml").federation.collaborators
    assert names == ("1", "null", "klinik-sud", "site-aggregator")
    for name in names:
        assert load_site_config(tmp_path / "new" / "sites" / name / "collaborator.yaml").collaborator == name


def test_a_class_between_the_runner_and_openfl_is_left_to_the_person(tmp_path: Path) -> None:
    text = RUNNER.replace(
        "class HeartRunner(PyTorchTaskRunner)",
        "class Base(PyTorchTaskRunner):\n    pass\n\n\nclass HeartRunner(Base)",
    )
    told = [one.words for one in migrated(tmp_path, {**WHOLE, "src/runner.py": text}).findings]
    assert any("derives from another class" in words for words in told)


def test_a_package_that_the_code_imports_is_told(tmp_path: Path) -> None:
    files = changed("from torch import nn", "import einops\nfrom torch import nn", "src/parts.py")
    files = {
        **files,
        "src/parts.py": files["src/parts.py"].replace(
            "self.layer(x)", "einops.rearrange(self.layer(x), 'a b -> a b')"
        ),
    }
    assert found(migrated(tmp_path, files), "package einops").place == "src/parts.py:1"


def test_the_list_is_json_too(tmp_path: Path) -> None:
    old = write_files(tmp_path / "old", OLD)
    ran = CliRunner().invoke(app, ["migrate", "openfl", str(old), "--output", str(tmp_path / "new"), "--json"])
    document = json.loads(ran.stdout)
    assert document["format"] == "fedfair/migration/1"
    assert {finding["kind"] for finding in document["findings"]} == {str(kind) for kind in FindingKind}
    assert str(tmp_path / "new" / "MIGRATION.md") in document["written"]


def test_a_value_of_the_old_plan_cannot_break_the_table(tmp_path: Path) -> None:
    files = {**OLD, "plan/plan.yaml": OLD_PLAN.replace("switch: 7", 'switch: "a | `b` <i>\\n# c"')}
    page = as_markdown("x", migrated(tmp_path, files).findings)
    row = next(line for line in page.splitlines() if "something_new" in line)
    assert row.replace("\\|", "").count("|") == 6
