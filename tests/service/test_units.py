"""The units of systemd: sound, sandboxed, and restarted only where a restart can help."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from fedfair.identity.store import SIGNING_KEY, TLS_CERTIFICATE, TLS_KEY
from fedfair.process.exit_status import ExitStatus
from tests.service.named import SERVICE, flags_in, options_of, variables_in, variables_of
from tests.service.units import Settings, only, read_unit

UNITS = {
    program: SERVICE / "systemd" / f"fedfair-{program}@.service" for program in ("aggregator", "collaborator")
}
PROGRAM = "/opt/fedfair/bin/fedfair"
MAX_EXPOSURE = 15
"""Tenths, on the scale of `systemd-analyze security`; a service without a sandbox has 96."""

FINAL = {
    "aggregator": {ExitStatus.REFUSED, ExitStatus.INTERRUPTED},
    "collaborator": {ExitStatus.REFUSED, ExitStatus.ABORTED, ExitStatus.INTERRUPTED},
}
"""Statuses that need a person. An aggregator continues a run that lost its sites; a site that gave up does not."""

analyzer = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="no systemd-analyze here; Debian's package systemd has it"
)


def service_of(program: str) -> Settings:
    return read_unit(UNITS[program])["Service"]


@pytest.mark.parametrize("program", UNITS)
def test_a_restart_follows_exactly_the_statuses_that_a_restart_can_help(program: str) -> None:
    service = service_of(program)
    assert only(service, "Restart") == "on-failure"  # so never after ExitStatus.DONE
    prevented = {ExitStatus(int(status)) for status in only(service, "RestartPreventExitStatus").split()}
    assert prevented == FINAL[program]
    # What `systemctl stop` ends a service with is no failure of it, and nothing else is a success beside the end.
    assert only(service, "SuccessExitStatus") == str(int(ExitStatus.STOPPED))
    assert int(only(service, "RestartSec")) > 0
    assert only(read_unit(UNITS[program])["Unit"], "StartLimitIntervalSec") == "0"


@pytest.mark.parametrize("program", UNITS)
def test_every_option_and_variable_of_a_unit_exists(program: str) -> None:
    text = UNITS[program].read_text()
    assert variables_in(text)
    assert variables_in(text) <= variables_of(program)
    assert {flag for _, _, flag in flags_in(text)} <= options_of(program, "start").keys()
    command = only(service_of(program), "ExecStart").split()
    assert command[:3] == [PROGRAM, program, "start"]


@pytest.mark.parametrize("program", UNITS)
def test_private_keys_come_as_credentials_and_never_the_authority_s_alone(program: str) -> None:
    service = service_of(program)
    linked = {Path(word).name for line in service["ExecStartPre"] if "/ln " in line for word in line.split()[2:]}
    assert {TLS_KEY, TLS_CERTIFICATE, SIGNING_KEY} <= linked
    loaded = dict(line.split(":") for line in service["LoadCredential"])
    used = {
        word.removeprefix("%d/")
        for line in service["ExecStartPre"]
        for word in line.split()
        if word.startswith("%d/")
    }
    # A folder is loaded file by file, under the name of the credential and an underscore.
    assert used
    assert all(name in loaded or name.split("_")[0] in loaded for name in used)
    if program == "aggregator":
        assert not any("authority" in source for source in loaded.values())


@pytest.mark.parametrize("program", UNITS)
def test_configuration_is_read_only_and_only_the_state_is_written(program: str) -> None:
    service = service_of(program)
    assert only(service, "ProtectSystem") == "strict"
    assert only(service, "DynamicUser") == "yes"
    assert only(service, "WorkingDirectory") == f"%S/{only(service, 'StateDirectory')}"
    assert "ReadWritePaths" not in service


@analyzer
@pytest.mark.parametrize("program", UNITS)
def test_systemd_finds_nothing_to_complain_about(program: str, tmp_path: Path) -> None:
    # The only complaint that is no fault: fedfair is not installed at its place on this machine.
    unit = tmp_path / UNITS[program].name
    standin = shutil.which("true")
    unit.write_text(UNITS[program].read_text().replace(PROGRAM, str(standin)))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@analyzer
@pytest.mark.parametrize("program", UNITS)
def test_systemd_grades_the_sandbox_as_tight(program: str) -> None:
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", f"--threshold={MAX_EXPOSURE}",
         str(UNITS[program])],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    grade = re.search(r"Overall exposure level for .*: ([\d.]+)", done.stdout)
    assert grade is not None, done.stderr
    assert float(grade[1]) * 10 <= MAX_EXPOSURE
    assert done.returncode == 0
