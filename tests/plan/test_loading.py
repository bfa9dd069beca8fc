"""Every kind of mistake in a plan file: one sentence each, with its line."""

import base64
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.errors import PlanError
from fedfair.plan.loading import load_plan
from fedfair.plan.yaml_reader import MAX_BYTES, parse_document, resolve
from fedfair.policy.site_config import load_site_config

REPOSITORY = Path(__file__).parents[2]

# The example of the architecture document, character for character.
REFERENCE = """\
federation: {name: heart, aggregator: {host: agg.example.org, port: 8443}, collaborators: [clinic-a, clinic-b, clinic-c], min_collaborators: 2}
task:
  data: breast-cancer                # a built-in name | {csv: {label: died, numeric: [...], categorical: {sex: [F, M]}}} | "module:function"
  standardize: secure                # secure | none: means and variances from one secure sum before round 1
  model: {name: mlp, hidden: [512]}  # {name: linear, init: zeros|random} | mlp | resnet18 | "module:function"
objective: {name: rcvar, worst_group_size: 0.1, tradeoff: 0.01, smoothing: {name: softplus, gamma: 0.05}, loss_bound: null}
training: {algorithm: fedsrcvar, rounds: 300, local_steps: 1, resample: step, batch_size: 64, learning_rate: 0.05, threshold_learning_rate: null,
           threshold_init: bound, weights: samples, output: last, seed: 0, device: auto, precision: fp32}   # batch_size: an integer or `full`; precision: fp32 | fp64 | bf16; threshold_init: bound | quantile | a number
secure_aggregation: {mode: malicious, colluders: 0, ring_bits: 32, clip: 1.0}
privacy: {sample_level: null, collaborator_level: null}
evaluation: {every: 10, group_sizes: [0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9], bins: 256}
"""  # noqa: E501 - kept as the document has it

PLAN = """\
federation:
  name: heart
  collaborators: [clinic-a, clinic-b, clinic-c]
task:
  data: breast-cancer
  model: {name: linear}
training:
  rounds: 300
objective:
  worst_group_size: 0.1
"""
KEY = "ed25519:" + base64.b64encode(bytes(range(32))).decode()
OTHER_KEY = "ed25519:" + base64.b64encode(bytes(range(1, 33))).decode()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder, so that messages name the bare file."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def fault(text: str | bytes) -> str:
    path = Path("plan.yaml")
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(PlanError) as caught:
        load_plan(path)
    return caught.value.diagnostics().replace("\n  -> ", " -> ")


MISTAKES = {
    "rounds: 300": [
        ("rounds: 0", "plan.yaml:8: training.rounds: must be >= 1, found 0 -> training rounds (T), an"),
        ("rounds: 3.5", "plan.yaml:8: training.rounds: must be an integer, found 3.5"),
        ("rounds: true", "plan.yaml:8: training.rounds: must be an integer, found true"),
        ("rounds: '300'", "training.rounds: must be an integer, found '300' -> write it without quotes"),
        ("rounds: null", "plan.yaml:8: training.rounds: must be an integer, found null"),
        ("rounds: 010", "plan.yaml:8: training.rounds: must be an integer, found '010'"),
        ("rounds: 9999999999", "plan.yaml:8: training.rounds: must be <= 1e+09, found 9999999999"),
        ("rounds: " + "9" * 5000, "plan.yaml:8: training.rounds: must be an integer, found '9999"),
        ("rouds: 300", "plan.yaml:8: training.rouds: unknown key -> did you mean 'rounds'?"),
        ("rouds: 300", "plan.yaml:7: training.rounds: is missing -> training rounds (T)"),
        ("rounds: 3\n  Z: 1", "plan.yaml:9: training.Z: unknown key -> the keys here are algorithm, "),
        ("rounds: 3\n  rounds: 4", "plan.yaml:9: key 'rounds' is repeated; it is also on line 8"),
        ("rounds: 3\n  learning_rate: .inf", "training.learning_rate: must be a finite number, found inf"),
        ("rounds: 3\n  learning_rate: 1e999", "training.learning_rate: must be a finite number"),
        ("rounds: 3\n  learning_rate: .nan", "training.learning_rate: must be a finite number, found nan"),
        ("rounds: 3\n  learning_rate: 0", "plan.yaml:9: training.learning_rate: must be > 0, found 0"),
        ("rounds: 3\n  learning_rate: '1e-3'", "found '1e-3' -> write it without quotes"),
        ("rounds: 3\n  batch_size: ful", "training.batch_size: must be a number or 'full', found 'ful'"),
        ("rounds: 3\n  batch_size: 0", "training.batch_size: must be >= 1, found 0"),
        ("rounds: 3\n  threshold_init: x", "must be a number or 'bound' or 'quantile', found 'x'"),
        ("rounds: 3\n  local_epochs: 2\n  local_steps: 2", "training.local_epochs: is 2 while local_steps"),
        ("rounds: 3\n  compile: yes", "training.compile: must be true or false, found 'yes'"),
        ("rounds: 3\n  algorithm: afle", "training.algorithm: must be 'fedsrcvar', 'fedavg'"),
        ("rounds: 3\n  algorithm: afl\n  local_steps: 5", "local_steps: is 5, but afl makes one local step in a"),
        ("rounds: 3\n  algorithm: afl\n  local_epochs: 1", "local_epochs: is 1, but a round of afl is counted in"),
        ("rounds: 3\n  algorithm: drfa\n  local_epochs: 2", "local_epochs: is 2, but a round of drfa is counted"),
        (
            "rounds: 3\n  algorithm: drfa\n  options: {drawn_collaborators: 4}",
            "drawn_collaborators: is 4, but there are only 3 collaborators",
        ),
        ("rounds: 3\n  algorithm: fedminmax\n  weights: uniform", "weights: is uniform, but fedminmax counts rec"),
        ("rounds: 3\n  algorithm: qffl\n  options: {loss_power: -1}", "loss_power: must be >= 0, found -1"),
        ("rounds: 3\n  algorithm: deltafl\n  options: {worst_share: 0}", "worst_share: must be > 0, found 0"),
        ("rounds: 3\n  algorithm: fedmgda\n  options: {weight_range: 2}", "weight_range: must be <= 1, found 2"),
        ("rounds: 3\n  algorithm: dro\n  options: {divergence: kl}", "divergence: must be 'cvar' or 'chi2', foun"),
        (
            "rounds: 3\n  algorithm: dro\n  options: {best_response: batch, adversary_interval: 2}",
            "adversary_interval: has no meaning where the adversary answers every batch",
        ),
        (
            "rounds: 3\n  algorithm: dro\n  options: {best_response: batch, divergence: chi2}",
            "divergence: is chi2, whose answer is computed for all records only -> use best_response",
        ),
        (
            "rounds: 3\n  algorithm: bpf\n  options: {best_response: all, adversary_learning_rate: 1}",
            "adversary_learning_rate: has no meaning where the adversary answers at once",
        ),
        ("rounds: 3\n  algorithm: bpf\n  options: {loss_power: 1}", "loss_power: has no meaning for bpf -> remov"),
        ("rounds: 3\n  options: {adversary_learning_rate: 0.1}", "adversary_learning_rate: has no meaning for fe"),
        ("rounds: &a 300", "plan.yaml:8: anchors and aliases (& and *) are not used here"),
        ("rounds: *a", "plan.yaml:8: anchors and aliases (& and *) are not used here"),
        ("rounds: !!python/object:os.system 3", "the tag tag:yaml.org,2002:python/object:os.system is not"),
        ("rounds: !!int '3'", "the tag tag:yaml.org,2002:int is not used here"),
        ("rounds: {[1]: 2}", "plan.yaml:8: a key is a list or a mapping -> write keys as plain words"),
        ("rounds: [", "plan.yaml:10: not YAML:"),
        ("\trounds: 300", "plan.yaml:8: not YAML: a tab stands where a word begins -> indent with spaces"),
        ("rounds: 300\n---\nb: 1", "plan.yaml:9: a second document begins here -> remove the line '---'"),
        ("rounds: 300\n  seed: \x07", "plan.yaml: not YAML:"),
    ],
    "rounds: 300\nobjective:": [
        ("rounds: 3\n  algorithm: bpf\nobjective:\n  tradeoff: 1", "objective.tradeoff: is 1, which is no BPF bu"),
        ("rounds: 3\n  threshold_init: 2\nobjective:\n  loss_bound: 1", "above objective.loss_b"),
    ],
    "training:\n  rounds: 300\n": [
        ("training: 300\n", "plan.yaml:7: training: must be a mapping, found 300"),
        ("", "plan.yaml:1: training: is missing -> how the model is trained"),
    ],
    "0.1": [
        ("1.5", "plan.yaml:10: objective.worst_group_size: must be <= 1, found 1.5"),
        ("0", "plan.yaml:10: objective.worst_group_size: must be > 0, found 0"),
        ("30", "it is a share: 30 % is 0.3"),
        ("'30%'", "write 30% as 0.3"),
    ],
    "worst_group_size: 0.1": [
        ("smoothing: {gamma: 0}", "plan.yaml:10: objective.smoothing.gamma: must be > 0, found 0"),
        ("smoothing: {name: silu}", "plan.yaml:10: objective.smoothing.name: must be 'softplus'"),
        ("tradeoff: -0.1", "plan.yaml:10: objective.tradeoff: must be >= 0, found -0.1"),
        ("loss_bound: 0", "plan.yaml:10: objective.loss_bound: must be > 0, found 0"),
        ("tradeoff: 5 %", "write 5 % as 0.05"),
    ],
    "objective:": [
        ("objectives:", "plan.yaml:9: objectives: unknown key -> did you mean 'objective'?"),
        ("privacy: {sample_level: {epsilon: 1}}\nobjective:", "privacy.sample_level.noise_multiplier: is missing"),
        ("evaluation: {group_sizes: [0.1, 0.1]}\nobjective:", "evaluation.group_sizes[1]: 0.1 follows 0.1"),
        ("evaluation: {group_sizes: 0.1}\nobjective:", "evaluation.group_sizes: must be a list, found 0.1"),
        ("evaluation: {group_sizes: []}\nobjective:", "must have at least 1 items, found an empty list"),
        ("evaluation: {bins: 7}\nobjective:", "plan.yaml:9: evaluation.bins: must be >= 8, found 7"),
        ("secure_aggregation: {colluders: 2}\nobjective:", "secure_aggregation.colluders: is 2 of 3 collab"),
        ("secure_aggregation: {ring_bits: 8}\nobjective:", "ring_bits: must be 32, 24, 20 or 16, found 8"),
        ("secure_aggregation: {clip: no}\nobjective:", "clip: must be a number or 'auto', found 'no'"),
    ],
    "name: heart": [
        ("name: Heart", "plan.yaml:2: federation.name: federation name 'Heart' is not usable"),
        ("name: heart\n  min_collaborators: 4", "min_collaborators: is 4, but there are only 3 collabora"),
        ("name: heart\n  roster: {clinic-z: x}", "federation.roster.clinic-z: 'clinic-z' is no collab"),
        ("name: heart\n  roster: {clinic-a: x}", "federation.roster.clinic-a: 'x' is not 'ed25519:' and"),
        ("name: heart\n  roster: {clinic-a: 3}", "roster.clinic-a: must be a text, found 3"),
        ("name: heart\n  aggregator: {port: 0}", "federation.aggregator.port: must be >= 1, found 0"),
        ("name: heart\n  aggregator: {host: 'http://a'}", "'http://a' is not a host name or IP address"),
    ],
    "clinic-b": [
        ("clinic-a", "plan.yaml:3: federation.collaborators[1]: 'clinic-a' is listed twice"),
        ("aggregator", "plan.yaml:3: federation.collaborators[1]: 'aggregator' is reserved"),
        ("12", "plan.yaml:3: federation.collaborators[1]: must be a text, found 12"),
    ],
    "[clinic-a, clinic-b, clinic-c]": [
        ("clinic-a", "federation.collaborators: must be a list, found 'clinic-a'"),
        ("[]", "federation.collaborators: must have at least 1 items"),
    ],
    "breast-cancer": [
        ("breast_cancer", "task.data: 'breast_cancer' is neither built in nor of the form module:fun"),
        ("{cvs: {}}", "task.data: has the key 'cvs'; it must be one of acs_employment, csv, eicu,"),
        ("{csv: {numeric: all}}", "plan.yaml:5: task.data.csv.label: is missing -> column to pred"),
        ("{csv: {label: y}}", "task.data.csv.numeric: no column is a feature"),
        ("{csv: {label: y, numeric: al}}", "task.data.csv.numeric: must be a list or 'all', found 'al'"),
        ("{csv: {label: y, numeric: [y]}}", "task.data.csv.numeric[0]: the label 'y' is also a feat"),
        ("{csv: {label: y, numeric: [a, a]}}", "task.data.csv.numeric[1]: column 'a' is listed twice"),
        ("{csv: {label: y, categorical: {a: [[1]]}}}", "categorical.a[0]: must be a text, a number"),
        ("{csv: {label: y, numeric: all, columns: [a, y, a]}}", "csv.columns[2]: column 'a' is listed twice -> g"),
        ("{csv: {label: y, numeric: [a], columns: [y, b]}}", "csv.columns: does not list column 'a', which the p"),
        ("{csv: {label: y, numeric: all, separator: ':'}}", "csv.separator: must be ',', ';', '\\t', '|' or ' ',"),
        ("{csv: {label: y, numeric: all, comment: ''}}", "csv.comment: must have at least 1 characters"),
        ("{csv: {label: y, numeric: all, label_values: [0]}}", "csv.label_values: lists fewer than 2 classes ->"),
        ("{csv: {label: y, numeric: all, label_values: [0, []]}}", "csv.label_values[1]: is a class without valu"),
        ("{csv: {label: y, numeric: all, label_values: [0, [1, 0]]}}", "csv.label_values[1]: value 0 is listed t"),
        ("{csv: {label: y, numeric: all, label_values: [0, [1, [2]]]}}", "csv.label_values[1][1]: must be a text"),
        (
            "{csv: {label: y, numeric: all, label_values: [0, 1], label_above: 0.5}}",
            "csv.label_above: is 0.5 while label_values lists the classes -> remove one of them",
        ),
        ("{csv: {label: y, numeric: [a], missing_of: {a: own}}}", "csv.missing_of.a: 'own' has no meaning for a"),
        ("{csv: {label: y, categorical: {a: [1]}, missing_of: {a: mean}}}", "csv.missing_of.a: 'mean' has no mea"),
        ("{csv: {label: y, numeric: [a], missing_of: {a: drop}}}", "csv.missing_of.a: must be 'refuse', 'mean',"),
        ("{csv: {label: y, numeric: [a], missing_values_of: {b: [0]}}}", "csv.missing_values_of.b: column 'b' is"),
        ("{csv: {label: y, numeric: all, missing_of: {y: zero}}}", "csv.missing_of.y: column 'y' is no feature"),
        (
            "{csv: {label: y, categorical: {a: [1, '?']}, missing_of: {a: own}}}",
            "csv.categorical.a[1]: value '?' means a missing one, for which missing_of says 'own' -> remove it",
        ),
        ("{csv: {label: y, numeric: [a], ranges: {a: [3, 1]}}}", "csv.ranges.a: from 3 to 1 is no range -> write"),
        ("{csv: {label: y, numeric: [a], ranges: {b: [0, 1]}}}", "csv.ranges.b: column 'b' is not numeric -> nam"),
        ("{csv: {label: y, numeric: all, ranges: {a: [0, 1]}}}", "csv.ranges: names columns while numeric is all"),
        ("{csv: {label: y, numeric: [a], ranges: {a: [0, .inf]}}}", "csv.ranges.a[1]: must be a finite number"),
        ("{csv: {label: y, numeric: [a], ranges: {a: [0]}}}", "csv.ranges.a[1]: is missing -> least and greatest"),
        ("{csv: {label: y, numeric: all, rows: {a: []}}}", "csv.rows.a: has no values, so that no row is taken -"),
        (
            "{csv: {label: y, numeric: all, train: t, train_of: {clinic-a: a}}}",
            "csv.train_of: names a file of each collaborator beside train, test or collaborator -> keep one",
        ),
        ("{csv: {label: y, categorical: {a: []}}}", "csv.categorical.a: has no values -> list at least"),
        ("{csv: {lable: y, label: y, numeric: all}}", "task.data.csv.lable: unknown key -> did you me"),
        ("{csv: {label: y, numeric: all, test: t}}\n  test_fraction: 0.5", "the data bring their own"),
        ("{cvs: {}}", "did you mean 'csv'?"),
    ],
    "{name: linear}": [
        ("linear", "plan.yaml:6: task.model: 'linear' is not of the form module:function"),
        ("{name: mpl}", "task.model: name is 'mpl'; it must be one of linear, mlp, resnet18; did you mean 'mlp'?"),
        ("{name: mlp, hiden: [3]}", "task.model.hiden: unknown key -> did you mean 'hidden'?"),
        ("{name: mlp, hidden: 512}", "task.model.hidden: must be a list, found 512"),
        ("{name: mlp, hidden: [0]}", "plan.yaml:6: task.model.hidden[0]: must be >= 1, found 0"),
        ("{name: linear}\n  classes: 1", "plan.yaml:7: task.classes: must be >= 2, found 1"),
        ("{name: linear}\n  test_fraction: 1", "task.test_fraction: must be < 1, found 1"),
        ("{name: linear}\n  test_fraction: 0.3\n  test_fold: 4", "task.test_fold: is 4, but test_fraction 0.3 ma"),
        ("{name: linear}\n  test_fold: 2", "task.test_fold: is 2 without a test_fraction -> state test_fraction"),
        ("{name: linear}\n  test_fraction: 0.5\n  validation_fraction: 0.5", "task.validation_fraction: test_fra"),
        (
            "{name: linear}\n  partition: {scheme: random, fractions: [0.5, 0.4, 0.2]}",
            "task.partition.fractions: sum to 1.1, not 1",
        ),
        (
            "{name: linear}\n  partition: {scheme: random, fractions: [0.5, 0.5]}",
            "task.partition.fractions: has 2 shares for 3 collaborators",
        ),
        ("{name: linear}\n  partition: {scheme: column}", "task.partition.column: is missing; scheme:"),
        ("{name: linear}\n  partition: {scheme: dirichlet}", "task.partition.alpha: is missing"),
        ("{name: linear}\n  partition: {scheme: label, alpha: 1}", "alpha: has no meaning with scheme"),
        ("{name: linear}\n  partition: {scheme: labels}", "task.partition.scheme: must be 'label', 'col"),
        ("{hidden: [3]}", "has no name; it must be one of linear, mlp, resnet18"),
        ("{name: linear}\n  loss: {name: hubre}", "name is 'hubre'"),
        ("{name: linear}\n  loss: {name: hubre}", "did you mean 'huber'?"),
        ("{name: linear}\n  test_fraction: 20", "it is a share: 20 % is 0.2"),
    ],
    "federation:\n  name: heart": [
        ("federation:\n  name: é", "federation.name: federation"),
    ],
}  # fmt: skip


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("old", "new", "expected"), [(old, *fault) for old, faults in MISTAKES.items() for fault in faults]
)
def test_a_mistake_in_a_plan_is_told_with_its_line(old: str, new: str, expected: str) -> None:
    assert old in PLAN
    assert expected in fault(PLAN.replace(old, new))


@pytest.mark.usefixtures("folder")
def test_a_number_that_is_no_share_is_not_taken_for_one() -> None:
    assert "it is a share" not in fault(PLAN.replace("0.1", "1000"))
    assert "30% as" not in fault(PLAN.replace("rounds: 300", "rounds: '30%'"))


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "plan.yaml is empty"),
        (b"# only words\n", "plan.yaml is empty"),
        (b"- a\n- b\n", "plan.yaml is not a mapping of keys to values"),
        (b"just words", "plan.yaml is not a mapping of keys to values"),
        (b"a: 1\nb: caf\xe9\n", "plan.yaml:2: byte 0xe9 is not UTF-8"),
        (b"a: " + b"x" * MAX_BYTES, f"and a file that people write has at most {MAX_BYTES}"),
        (b"[" * 50_000, "plan.yaml:1: more than 20 levels of nesting"),
        (b"a: " + b"{b: " * 15_000, "plan.yaml:1: more than 20 levels of nesting"),
        (b"\x00\x00", "plan.yaml: not YAML: unacceptable character"),
        (b"a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n", "plan.yaml:1: anchors and aliases (& and *)"),
        (b"<<: {a: 1}\n", "plan.yaml:1: <<: unknown key"),
    ],
)
def test_a_file_that_is_no_plan_is_one_clear_error(content: bytes, expected: str) -> None:
    assert expected in fault(content)


def test_every_file_that_people_write_is_bounded_before_it_is_parsed(folder: Path) -> None:
    assert MAX_BYTES == 64 << 10
    assert "at most 64 KiB" in (REPOSITORY / "docs" / "reference" / "plan.md").read_text(encoding="utf-8")
    (folder / "plan.yaml").write_text(PLAN)
    long = "#" * MAX_BYTES + "\n"
    (folder / "roster.yaml").write_text(long)
    (folder / "collaborator.yaml").write_text(long)
    for name, read in (("plan", load_plan), ("collaborator", load_site_config)):
        with pytest.raises(PlanError, match=f"and a file that people write has at most {MAX_BYTES}") as raised:
            read(folder / f"{name}.yaml")
        assert "a value that is not listed counts as other" in raised.value.remedy


@pytest.mark.usefixtures("folder")
def test_all_faults_are_told_in_order_up_to_forty() -> None:
    text = PLAN.replace("rounds: 300", "rouds: 300\n  batch_size: x").replace("0.1", "2").replace("heart", "HEART")
    assert [line.split(":")[1] for line in fault(text).splitlines()[1:]] == ["2", "7", "8", "9", "11"]
    assert fault(text).startswith("plan.yaml has 5 faults:\n  plan.yaml:2: federation.name: ")
    lines = fault("".join(f"key{number}: 1\n" for number in range(3000))).splitlines()
    assert len(lines) == 42
    assert lines[0].startswith("plan.yaml has 300")
    assert lines[-1].startswith("  and 29")


@pytest.mark.usefixtures("folder")
def test_a_result_that_is_given_for_a_plan_is_one_fault() -> None:
    said = "plan.yaml is a file of the form fedfair/result/1, and no plan -> name the plan, such as plan/plan.yaml"
    assert fault('{"format": "fedfair/result/1", "rounds": 3}') == said


def test_a_missing_file_a_folder_and_a_result_are_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"plan/plan\.yaml does not exist") as alone:
        load_plan("plan/plan.yaml")
    assert alone.value.remedy.startswith("run the command in the folder of a federation")
    (folder / "heart" / "plan").mkdir(parents=True)
    (folder / "heart" / "plan" / "plan.yaml").write_text(PLAN)
    with pytest.raises(PlanError, match=r"plan/plan\.yaml does not exist") as beside:
        load_plan("plan/plan.yaml")
    assert "(here is heart)" in beside.value.remedy
    with pytest.raises(PlanError, match=r"none\.yaml does not exist"):
        load_plan(tmp_path / "none.yaml")
    with pytest.raises(PlanError, match="is a folder, not a file"):
        load_plan(tmp_path)


@pytest.mark.usefixtures("folder")
def test_the_reference_plan_and_scientific_notation_mean_what_they_look_like() -> None:
    Path("plan.yaml").write_text(REFERENCE)
    plan = load_plan(Path("plan.yaml"))
    assert plan.federation.collaborators == ("clinic-a", "clinic-b", "clinic-c")
    assert plan.training.rounds == 300
    assert plan.federation.aggregator.host == "agg.example.org"
    text = PLAN.replace("rounds: 300", "rounds: 300\n  learning_rate: 1e-3").replace("clinic-b", "no")
    Path("plan.yaml").write_text("\ufeff" + text)
    plan = load_plan(Path("plan.yaml"))
    assert plan.training.learning_rate == 1e-3
    assert plan.federation.collaborators == ("clinic-a", "no", "clinic-c")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 1e-3), ("1.5E+2", 150.0), (".5", 0.5), ("5.", 5.0), ("-0", 0), ("+7", 7), ("007", "007"),
        ("0x1f", "0x1f"), ("1_000", "1_000"), ("2020-01-01", "2020-01-01"), ("on", "on"), ("No", "No"),
        ("True", True), ("tRue", "tRue"), ("", None), ("~", None), ("Null", None), ("e5", "e5"), (".", "."),
        ("9223372036854775807", 2**63 - 1),
    ],
)  # fmt: skip
def test_a_scalar_means_what_yaml_1_2_says(text: str, value: object) -> None:
    resolved = resolve(text)
    assert (type(resolved), resolved) == (type(value), value)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_float_that_python_writes_is_read_back(value: float) -> None:
    assert resolve(repr(value)) == value


@given(st.text(max_size=60))
@settings(deadline=None, max_examples=50)
def test_any_text_is_a_mapping_or_a_plan_error(text: str) -> None:
    try:
        document = parse_document(text, Path("plan.yaml"))
    except PlanError as error:
        told = error.message
    else:
        assert isinstance(document.values, dict)
        told = str(document.spot(("nowhere",)))
    assert told.startswith("plan.yaml")


@pytest.mark.usefixtures("folder")
def test_a_roster_beside_the_plan_is_merged_in_with_its_own_lines() -> None:
    Path("plan.yaml").write_text(PLAN)
    Path("roster.yaml").write_text(f"clinic-a: {KEY}\nclinic-b: {OTHER_KEY}\n")
    assert load_plan(Path("plan.yaml")).federation.roster == {"clinic-a": KEY, "clinic-b": OTHER_KEY}
    Path("roster.yaml").write_text(f"clinic-a: {KEY}\nclinic-x: {OTHER_KEY}\n")
    assert "roster.yaml:2: federation.roster.clinic-x: 'clinic-x' is no collaborator" in fault(PLAN)
    Path("roster.yaml").write_text(f"clinic-a: {KEY}\n")
    assert "plan.yaml:3: federation.roster: the roster is also in roster.yaml" in fault(
        PLAN.replace("name: heart", "name: heart\n  roster: {}")
    )
