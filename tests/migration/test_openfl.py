"""From an OpenFL workspace to one of fedfair: plan and sites are written, the rest is told, no code is run."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from fedfair.cli.commands import app
from fedfair.errors import DataError, PlanError
from fedfair.migration.openfl_plan import Finding, FindingKind, as_markdown
from fedfair.migration.openfl_workspace import Migration, migrate, write
from fedfair.plan.loading import load_plan
from fedfair.policy.site_config import load_site_config
from fedfair.tables.source import load_federation
from tests.migration.openfl_samples import OLD, OLD_PLAN, PLAN, SAMPLES, WHOLE, Files, write_files


def migrated(folder: Path, files: Files, name: str | None = None) -> Migration:
    return migrate(write_files(folder / "old", files), name, None)


def found(migration: Migration, key: str) -> Finding:
    return next(finding for finding in migration.findings if finding.key == key)


MODEL = """\
from torch import nn


def build(schema):
    return nn.Linear(schema.input_shape[0], schema.classes)
"""

LOADER = """\
import numpy as np


def records(folder):
    table = np.loadtxt(folder / "table.csv", delimiter=",", skiprows=1)
    return table[:, :-1], table[:, -1].astype(int)
"""


def test_a_workspace_is_checked_and_simulated_once_both_modules_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(tmp_path / "hearts", WHOLE)
    monkeypatch.chdir(tmp_path)
    ran = CliRunner().invoke(app, ["migrate", "openfl", "hearts", "--output", "new"])
    assert ran.exit_code == 0, ran.output
    assert "data of" not in ran.output
    new = tmp_path / "new"
    checked = CliRunner().invoke(app, ["plan", "check", "-p", str(new / "plan" / "plan.yaml")])
    assert checked.exit_code == 0, checked.output
    assert "docs/how-to/from-openfl.md" in ran.output
    (new / "src" / "hearts_model.py").write_text(MODEL)
    (new / "src" / "hearts_loader.py").write_text(LOADER)
    draw = np.random.default_rng(3)
    features = draw.normal(size=(200, 4))
    table = np.column_stack([features, features[:, 0] > 0])
    np.savetxt(new / "table.csv", table, delimiter=",", header="a,b,c,d,y", comments="")
    path = new / "plan" / "plan.yaml"
    text = path.read_text().replace("  # partition:", "  partition:").replace("rounds: 4", "rounds: 40")
    path.write_text(
        text.replace("  # input_shape: [13]", "  input_shape: [4]").replace("  # classes:", "  classes:")
    )
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
    assert (plan.task.data, plan.task.model) == ("hearts_loader:records", "hearts_model:build")
    assert plan.secure_aggregation.mode == "malicious"
    site = load_site_config(tmp_path / "new" / "sites" / "clinic-a" / "collaborator.yaml")
    assert (site.collaborator, site.data.root, site.device) == ("clinic-a", "/srv/hearts", "cpu")
    assert site.policy.allow_module_code is False


def test_an_old_workspace_takes_shards_and_makes_up_names_that_it_lacks(tmp_path: Path) -> None:
    write(migrated(tmp_path, OLD, "pictures-of-old"), tmp_path / "new")
    plan = load_plan(tmp_path / "new" / "plan" / "plan.yaml")
    assert plan.federation.collaborators == ("one", "two", "collaborator1")
    assert plan.federation.min_collaborators == 2
    assert plan.task.partition is not None
    assert (plan.training.local_epochs, plan.training.batch_size) == (1, 4)
    assert plan.training.server_optimizer is None


def test_modules_refuse_in_words_until_they_are_written(tmp_path: Path) -> None:
    write(migrated(tmp_path, WHOLE, "4-hearts"), tmp_path / "new")
    path = tmp_path / "new" / "plan" / "plan.yaml"
    text = path.read_text().replace("  # partition:", "  partition:")
    path.write_text(text.replace("  # input_shape:", "  input_shape:").replace("  # classes:", "  classes:"))
    assert CliRunner().invoke(app, ["plan", "check", "-p", str(path)]).exit_code == 0
    with pytest.raises(PlanError, match=r"w4_hearts_model.py: the model is not written yet: complete `build`"):
        CliRunner().invoke(app, ["plan", "digest", "-p", str(path)], catch_exceptions=False)
    with pytest.raises(DataError, match=r"w4_hearts_loader.py: the loader is not written yet: complete `records`"):
        load_federation(load_plan(path), tmp_path / "new")


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
        ("data_loader.template", FindingKind.BY_HAND, "write `records`"),
        ("task_runner.settings.kernels", FindingKind.BY_HAND, "belongs into `build`"),
        ("input_shape", FindingKind.BY_HAND, "state task.input_shape"),
    ],
)
def test_what_has_no_counterpart_says_what_to_do(tmp_path: Path, key: str, kind: FindingKind, says: str) -> None:
    finding = found(migrated(tmp_path, OLD), key)
    assert finding.kind == kind
    assert says in finding.what_to_do
    path, _, line = finding.place.partition(":")
    assert key == "input_shape" or key.rpartition(".")[2] in OLD[path].splitlines()[int(line) - 1]


def test_a_switch_that_yaml_1_1_takes_as_on_is_on(tmp_path: Path) -> None:
    assert found(migrated(tmp_path, WHOLE), "aggregator.settings.secure_aggregation").what_to_do.startswith(
        "sums are masked un"
    )


def test_a_file_that_is_not_in_the_workspace_is_told_and_found_in_the_folder_that_is_given(tmp_path: Path) -> None:
    files = {name: text for name, text in WHOLE.items() if "defaults" not in name}
    old = write_files(tmp_path / "old", files)
    missing = next(one for one in migrate(old, None, None).findings if one.key == "tasks.defaults")
    assert missing.kind == FindingKind.BY_HAND
    assert "--defaults" in missing.what_to_do
    installed = write_files(tmp_path / "openfl-workspace" / "workspace", WHOLE)
    given = migrate(old, None, installed)
    assert next(one for one in given.findings if one.key == "tasks.defaults").kind == FindingKind.CARRIED_OVER
    assert found(given, "network.settings.hash_salt").place.endswith("plan/defaults/network.yaml:5")


def changed(old: str, new: str, file: str = "plan/plan.yaml", files: Files = WHOLE) -> Files:
    assert old in files[file]
    return {**files, file: files[file].replace(old, new)}


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
    "Flower": ({**WHOLE, "plan/plan.yaml": PLAN + "connector: {a: {}}\n"}, r"plan.yaml:\d+: .* another framework"),
    "a workflow": (changed("compression_pipeline", "federated_flow"), r"OpenFL's workflow interface"),
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
