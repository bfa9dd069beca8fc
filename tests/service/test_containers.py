"""Images, compose file and chart, read as data: neither Docker nor Helm is needed to find a wrong name in them."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from fedfair.process.exit_status import ExitStatus
from fedfair.version import __version__
from supply.pins import BASE, read
from tests.service.chart import render
from tests.service.named import (
    FILES,
    PAGES,
    PROGRAMS,
    SERVICE,
    flags_in,
    missing_pages,
    options_of,
    variables_in,
    variables_of,
)

DOCKERFILE = SERVICE / "docker" / "Dockerfile"
COMPOSE = SERVICE / "compose.yaml"
CHART = SERVICE / "helm" / "fedfair-lead"
STATE = "/federation"


def services() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load(COMPOSE.read_text())["services"]
    return found


def program_of(service: dict[str, Any]) -> str:
    return str(re.match(r"fedfair-(\w+):", service["image"])[1])  # type: ignore[index]


def job(**changes: Any) -> dict[str, Any]:  # noqa: ANN401 - values have every type
    (found,) = (one for one in render(CHART, "heart", changes) if one["kind"] == "Job")
    return found


def pod() -> dict[str, Any]:
    found: dict[str, Any] = job()["spec"]["template"]["spec"]
    return found


@pytest.mark.parametrize("path", [*FILES, *PAGES], ids=lambda path: path.name)
def test_every_variable_option_and_file_that_is_named_exists(path: Path) -> None:
    text = path.read_text()
    assert variables_in(text) <= set().union(*map(variables_of, PROGRAMS))
    assert {one for one in flags_in(text) if one[2] not in options_of(one[0], one[1])} == set()
    assert missing_pages(path) == set()


def test_the_images_are_of_both_programs_run_as_nobody_and_install_by_hash() -> None:
    text = DOCKERFILE.read_text()
    lines = re.sub(r"\\\n", " ", text).splitlines()
    assert set(re.findall(r"^FROM program AS (\w+)$", text, re.MULTILINE)) == set(PROGRAMS)
    for program in PROGRAMS:
        assert f'CMD ["{program}", "start"]' in lines
    (user,) = (line.split()[1] for line in lines if line.startswith("USER"))
    assert all(int(number) > 0 for number in user.split(":"))
    installs = [line for line in lines if "pip install" in line]
    assert len(installs) == 2
    assert all({"--no-index", "--require-hashes", "--no-deps"} <= set(install.split()) for install in installs)
    # The aggregator's image has the base list alone, and so no torch.
    (light,) = (line for line in installs if "run.txt" not in line)
    assert "--requirement base.txt" in light
    assert "COPY --from=light" in text.split("FROM program AS aggregator")[1].split("FROM")[0]
    assert "torch" not in read(BASE)
    assert f"WORKDIR {STATE}" in lines
    # Every stage begins with a base or with a stage before it.
    stages: set[str] = set()
    for line in lines:
        if line.startswith("FROM"):
            _, base, _, name = line.split()
            assert base in stages | {"${PYTHON}"}
            stages.add(name)
        for source in re.findall(r"--from=(\w+)", line):
            assert source in stages


def test_the_versions_are_those_of_the_package() -> None:
    assert all(service["image"].endswith(f":{__version__}") for service in services().values())
    assert {chart["appVersion"] for chart in [yaml.safe_load((CHART / "Chart.yaml").read_text())]} == {__version__}
    assert yaml.safe_load((CHART / "values.yaml").read_text())["image"]["tag"] == __version__
    assert f":{__version__} build/wheels" in DOCKERFILE.read_text()


@pytest.mark.parametrize("name", services())
def test_a_service_of_the_compose_file_is_sandboxed_and_named_rightly(name: str) -> None:
    service = services()[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not service["user"].startswith("0")
    assert service["environment"].keys() <= variables_of(program_of(service))
    state, keys = (volume.split(":") for volume in service["volumes"])
    assert state[1] == STATE
    assert keys[1:] == [f"{STATE}/cert", "ro"]
    if build := service.get("build"):
        assert (SERVICE / build["context"]).resolve() == SERVICE.parent.parent / "build" / "wheels"
        assert (SERVICE / build["context"] / build["dockerfile"]).resolve() == DOCKERFILE
        assert build["target"] == program_of(service)


def test_the_job_stops_where_a_restart_cannot_help_and_goes_on_elsewhere() -> None:
    policy = job()["spec"]["podFailurePolicy"]["rules"]
    final = next(rule["onExitCodes"] for rule in policy if rule["action"] == "FailJob")
    assert set(final["values"]) == {ExitStatus.REFUSED, ExitStatus.INTERRUPTED}
    moved = next(rule["onExitCodes"] for rule in policy if rule["action"] == "Ignore" and "onExitCodes" in rule)
    assert moved["values"] == [ExitStatus.STOPPED], "a drained node would end the job as complete, or as failed"
    assert final["containerName"] in {container["name"] for container in pod()["containers"]}
    assert job()["spec"]["podReplacementPolicy"] == "Failed"
    assert pod()["restartPolicy"] == "Never"


def test_the_pod_is_sandboxed() -> None:
    (container,) = pod()["containers"]
    assert pod()["securityContext"]["runAsNonRoot"] is True
    assert pod()["automountServiceAccountToken"] is False
    # Or a service that is called `fedfair` would set FEDFAIR_PORT and more.
    assert pod()["enableServiceLinks"] is False
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_everything_that_the_pod_mounts_is_declared_and_every_path_it_names_is_mounted() -> None:
    (container,) = pod()["containers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts.keys() == {volume["name"] for volume in pod()["volumes"]}
    given = {one["name"]: one["value"] for one in container["env"]}
    assert given.keys() <= variables_of("aggregator")
    paths = [value for value in given.values() if value.startswith("/")]
    assert all(any(Path(path).is_relative_to(mount) for mount in mounts.values()) for path in paths)
    assert container["workingDir"] == mounts["federation"]
    secret = next(volume["secret"] for volume in pod()["volumes"] if "secret" in volume)
    assert {item["path"] for item in secret["items"]} == {
        "aggregator/tls.key", "aggregator/tls.crt", "aggregator/signing.key", "ca.crt", "revoked.crl",
    }  # fmt: skip


def test_the_parts_of_the_chart_fit_together() -> None:
    parts = {one["kind"]: one for one in render(CHART, "heart")}
    assert parts.keys() == {"Job", "Service", "NetworkPolicy", "PersistentVolumeClaim"}
    labels = job()["spec"]["template"]["metadata"]["labels"]
    assert parts["Service"]["spec"]["selector"].items() <= labels.items()
    assert parts["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
    claims = {volume["persistentVolumeClaim"]["claimName"] for volume in pod()["volumes"] if len(volume) == 2
              and "persistentVolumeClaim" in volume}  # fmt: skip
    assert claims == {parts["PersistentVolumeClaim"]["metadata"]["name"]}
    ports = {port["name"] for container in pod()["containers"] for port in container["ports"]}
    assert {port["targetPort"] for port in parts["Service"]["spec"]["ports"]} == ports


def test_options_of_the_values_reach_the_aggregator() -> None:
    changed = job(environment={"FEDFAIR_AFTER_RESTORE": "continue"}, port=9443)
    (container,) = changed["spec"]["template"]["spec"]["containers"]
    given = {one["name"]: one["value"] for one in container["env"]}
    assert given["FEDFAIR_AFTER_RESTORE"] == "continue"
    assert given["FEDFAIR_LISTEN"] == "0.0.0.0:9443"
    (claim,) = (one for one in render(CHART, "heart", {"storage": {"size": "1Gi", "className": "fast"}})
                if one["kind"] == "PersistentVolumeClaim")  # fmt: skip
    assert claim["spec"]["storageClassName"] == "fast"


@pytest.mark.parametrize("words", ["{{ .Values.unknown }}", "{{ include x }}", "{{ .Values.port | b64enc }}"])
def test_a_template_that_cannot_be_rendered_here_is_refused(words: str, tmp_path: Path) -> None:
    (tmp_path / "templates").mkdir()
    for name in ("Chart.yaml", "values.yaml"):
        (tmp_path / name).write_text((CHART / name).read_text())
    (tmp_path / "templates" / "one.yaml").write_text(f"kind: {words}\n")
    with pytest.raises(ValueError, match=r"is not known here|has no value"):
        render(tmp_path, "heart")
