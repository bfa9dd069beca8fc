"""Real processes whose keys are encrypted: each way to give the passphrase, and a wrong one."""

from pathlib import Path

import pytest

from fedfair.cli.loopback import prepare
from fedfair.identity.files import private_pem, read_signing_key, read_tls_key, write_private
from tests.interop.own_folders import with_own_folders
from tests.interop.processes import Started, ended
from tests.plans import NAMES, small_plan

pytestmark = pytest.mark.slow


def encrypt(folder: Path, passphrase: bytes) -> None:
    for name in ("tls.key", "signing.key"):
        read = read_tls_key if name == "tls.key" else read_signing_key
        write_private(folder / name, private_pem(read(folder / name, "a key"), passphrase))
        assert b"BEGIN ENCRYPTED PRIVATE KEY" in (folder / name).read_bytes()


def test_processes_with_encrypted_keys_run_to_the_end_and_a_wrong_passphrase_is_one_error(
    tmp_path: Path, started: Started
) -> None:
    workspace = started.workspace = prepare(tmp_path, small_plan(rounds=2))
    folders, lead = with_own_folders(workspace), workspace.folder / "cert"
    encrypt(lead / "aggregator", b"of the lead")
    for name in NAMES:
        encrypt(folders[name] / name, b"of a clinic")
    for file, words in (("lead.txt", "of the lead"), ("wrong.txt", "of nobody"), ("clinic.txt", "of a clinic")):
        (tmp_path / file).write_text(f"{words}\n")
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    (credentials / "fedfair-passphrase").write_text("of a clinic")

    for module, words in (
        ("aggregator", ("start",)),
        ("collaborator", ("start", "-n", "clinic-a", "-c", "clinic-a.yaml")),
    ):
        done = started.command(module, *words, "--passphrase-file", "wrong.txt")
        assert done.returncode == 2, done.stdout
        assert done.stdout.count("does not open with this passphrase") == 1
        assert "Traceback" not in done.stdout

    aggregator = started.aggregator("--passphrase-file", "lead.txt")
    first = started.collaborator(NAMES[0], "--passphrase-file", "clinic.txt")
    started.environment = {**started.environment, "CREDENTIALS_DIRECTORY": str(credentials)}
    others = [started.collaborator(name) for name in NAMES[1:]]
    for process in (aggregator, first, *others):
        status, said = ended(process)
        assert status == 0, said
    # No file of the federation holds a key of these participants in the clear.
    clear = b"BEGIN PRIVATE KEY"
    found = {
        str(path.relative_to(tmp_path))
        for path in tmp_path.rglob("*")
        if path.is_file() and clear in path.read_bytes()
    }
    assert found == {"cert/authority/ca.key"}
