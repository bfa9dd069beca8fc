"""Sample files of each format: this version opens those of the versions it names, and refuses newer ones in words.

`python -m tests.vectors.make_formats` writes the samples of a version; older folders stay.
"""

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from aggregator.journal import Journal
from collaborator.ledger import Ledger
from collaborator.run_store import RunStore
from fedfair.aggregation import model_file
from fedfair.aggregation.evaluation_file import parse_evaluation
from fedfair.audit.entry import parse_line
from fedfair.certificate.document import parse_certificate
from fedfair.cli.commands import app
from fedfair.errors import FedfairError
from fedfair.ids import FederationName, ParticipantId
from fedfair.plan.approval import verify_approval
from fedfair.plan.loading import load_plan
from fedfair.plan.public_keys import parse_public_key
from fedfair.policy.site_config import load_site_config
from fedfair.results.reading import parse_result
from fedfair.run.initial_model import InitialModel, initial_model_file, read_initial_model
from fedfair.run.saved_model import read_saved
from fedfair.run.training_run import TrainingRun
from fedfair.version import __version__
from fedfair.workspace.archive import read_archive, unpack

SAMPLES = Path(__file__).parent / "formats"
SITE = "clinic-a"


@pytest.fixture(params=sorted(path.name for path in SAMPLES.iterdir() if path.is_dir()))
def sample(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a copy of the files of one version: what opens a state may write to it."""
    return Path(shutil.copytree(SAMPLES / str(request.param), tmp_path / "sample"))


def bound(sample: Path) -> InitialModel:
    plan_file = sample / "plan" / "plan.yaml"
    return read_initial_model(plan_file, load_plan(plan_file))


def test_there_are_samples_of_this_version() -> None:
    assert (SAMPLES / __version__ / "plan" / "plan.yaml").is_file(), "python -m tests.vectors.make_formats"


def test_plan_site_file_workspace_and_models_open(sample: Path) -> None:
    assert load_plan(sample / "plan" / "plan.yaml").federation.collaborators[0] == SITE
    assert load_site_config(sample / f"{SITE}.yaml").collaborator == SITE
    assert bound(sample).layout.dimension == 62
    unpacked = unpack(read_archive(sample / "workspace.zip"), sample / "unpacked")
    assert {path.name for path in unpacked} == {"plan.yaml", "plan.initial.safetensors"}
    model = read_saved(sample / "save" / "last.safetensors")
    assert (model.saved.round, model.layout.dimension) == (3, 62)


def test_an_approval_verifies_and_a_revocation_list_and_a_record_are_read(sample: Path) -> None:
    plan = load_plan(sample / "plan" / "plan.yaml")
    verify_approval(
        (sample / "approvals" / f"{SITE}.json").read_bytes(),
        plan_digest=bound(sample).plan_digest,
        federation=FederationName(plan.federation.name),
        participant=ParticipantId(SITE),
        public_key=Ed25519PublicKey.from_public_bytes(parse_public_key(plan.federation.roster[SITE])),
    )

    assert list(x509.load_pem_x509_crl((sample / "cert" / "authority" / "revoked.crl").read_bytes())) == []
    plan_file = str(sample / "plan" / "plan.yaml")
    for record in ("egress", "received"):
        app(["audit", "show", str(sample / record / f"{SITE}.jsonl")], standalone_mode=False)
    app(["audit", "verify", str(sample / "egress" / f"{SITE}.jsonl"), "-p", plan_file], standalone_mode=False)


def test_result_evaluation_and_certificate_open(sample: Path) -> None:
    result = parse_result((sample / "result.json").read_bytes(), "result.json")
    evaluation = parse_evaluation((sample / "save" / "evaluation.json").read_bytes(), "evaluation.json")
    certificate = parse_certificate((sample / "certificate.json").read_bytes(), "certificate.json")
    assert result.train.n == evaluation.splits["train"].n == certificate.n == 569
    app(["certificate", "verify", str(sample / "certificate.json"), "--unsigned"], standalone_mode=False)


def test_the_state_of_an_aggregator_and_of_a_site_opens(sample: Path) -> None:
    made = bound(sample)
    # When the samples were written, a plan that states neither key meant these.
    meant = {"objective": {"measure": "loss"}, "training": {"threshold_init": "bound"}}
    plan = load_plan(sample / "plan" / "plan.yaml").with_(**meant)
    run = TrainingRun(plan, made.layout, made.schema, made.vector)
    journal = Journal.open(sample / "save" / "journal.sqlite", made.plan_digest, "another", 0.0)
    entry = journal.latest()
    journal.close()
    run.restore(entry.training_run)
    (place,) = (sample / "state").glob(f"{SITE}-*.run")
    kept = RunStore(place, lambda _: False).load(run.initial)
    assert (kept[0], kept[1].digest(made.plan_digest)) == (journal.run_id, run.state.digest(made.plan_digest))
    assert len(Ledger(sample / "ledger.sqlite").look()) > 2


def read_journal(place: Path) -> None:
    Journal.open(place, bytes(32), "new", 0.0).close()


def read_record(place: Path) -> None:
    parse_line(place.read_bytes().splitlines(keepends=True)[0])


def read_approval(place: Path) -> None:
    roster = load_plan(place.parents[1] / "plan" / "plan.yaml").federation.roster
    key = Ed25519PublicKey.from_public_bytes(parse_public_key(roster[SITE]))
    names = FederationName("heart"), ParticipantId(SITE)
    verify_approval(
        place.read_bytes(), plan_digest=bytes(32), federation=names[0], participant=names[1], public_key=key
    )


def newer_text(place: Path, found: str) -> None:
    raw, stem = place.read_bytes(), found.rpartition("/")[0].encode()
    at = raw.index(stem + b"/") + len(stem) + 1
    place.write_bytes(raw[:at] + found.rpartition("/")[2].encode() + raw[at + 1 :])


def newer_journal(place: Path, found: str) -> None:
    with sqlite3.connect(place) as connection:
        connection.execute("UPDATE run SET format = ?", (found,))
    connection.close()


def newer_model(place: Path, found: str) -> None:
    layout, vector, words = model_file.load(place)
    model_file.save(place, layout, vector, {**words, "format": found})


@pytest.mark.parametrize(
    ("name", "found", "known", "write", "read"),
    [
        ("result.json", "fedfair/result/9", "fedfair/result/1", newer_text,
         lambda place: parse_result(place.read_bytes(), str(place))),
        ("save/evaluation.json", "fedfair/evaluation/9", "fedfair/evaluation/1", newer_text,
         lambda place: parse_evaluation(place.read_bytes(), str(place))),
        ("certificate.json", "fedfair/certificate/9", "fedfair/certificate/2", newer_text,
         lambda place: parse_certificate(place.read_bytes(), str(place))),
        (f"approvals/{SITE}.json", "fedfair/approval/9", "fedfair/approval/1", newer_text, read_approval),
        (f"egress/{SITE}.jsonl", "fedfair/egress/9", "fedfair/egress/1", newer_text, read_record),
        ("plan/plan.initial.safetensors", "fedfair/initial-model/9", "fedfair/initial-model/1", newer_model,
         lambda place: bound(place.parents[1])),
        ("save/journal.sqlite", "fedfair/journal/9", "fedfair/journal/7", newer_journal, read_journal),
    ],
    ids=lambda value: value if isinstance(value, str) and "." in value else "",
)  # fmt: skip
def test_a_newer_file_is_refused_with_both_versions_and_a_remedy(
    sample: Path,
    name: str,
    found: str,
    known: str,
    write: Callable[[Path, str], None],
    read: Callable[[Path], object],
) -> None:
    write(sample / name, found)
    with pytest.raises(FedfairError) as fault:
        read(sample / name)
    assert found in fault.value.message
    assert known in fault.value.message
    assert f"fedfair {__version__} reads" in fault.value.message
    assert fault.value.remedy


def test_a_newer_plan_is_refused_by_the_name_of_the_key(sample: Path) -> None:
    place = sample / "plan" / "plan.yaml"
    place.write_text(place.read_text() + "postscript: {}\n")
    with pytest.raises(FedfairError, match="postscript: unknown key"):
        load_plan(place)
    initial_model_file(place).unlink()
