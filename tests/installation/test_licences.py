"""Licences and the bill of materials: they fit the locked lists, and what is installed says the same."""

import json

import pytest

from supply import licences, wheels
from supply.licences import UNSTATED, known, stated
from supply.pins import CPU, CUDA, DEVELOPMENT, DISTRIBUTION, RUN, read

NO_CLASSIFIERS: tuple[str, ...] = ()


def test_the_file_has_the_licence_of_every_locked_version_and_of_no_other() -> None:
    locked = {name: pin.version for name, pin in {**read(CUDA), **read(DEVELOPMENT)}.items()}
    assert {name: one.version for name, one in known().items()} == locked, "run: make lock"


def test_what_is_installed_states_the_licence_of_the_file() -> None:
    here = licences.installed(read(DEVELOPMENT).values())
    assert len(here) > 50
    file = known()
    assert {name: one for name, one in here.items() if one != file[name]} == {}


def test_the_page_lists_every_distribution_once() -> None:
    rows = [line.split("|")[1].strip() for line in licences.page().splitlines() if line.startswith("| ")]
    names = [name for name in rows if name != "distribution"]
    assert sorted(names) == sorted({**read(CUDA), **read(DEVELOPMENT)})


def test_only_a_metapackage_states_no_licence() -> None:
    assert {name for name, one in known().items() if one.licence == UNSTATED} <= {"cuda-toolkit"}


@pytest.mark.parametrize(
    ("expression", "name", "classifiers", "licence"),
    [
        ("MIT OR Apache-2.0", "ignored", ("License :: OSI Approved :: BSD License",), "MIT OR Apache-2.0"),
        (None, "MIT License", NO_CLASSIFIERS, "MIT"),
        (None, "Apache 2.0", ("License :: OSI Approved :: Apache Software License",), "Apache-2.0"),
        (None, "BSD-3-Clause", ("License :: OSI Approved :: BSD License",), "BSD-3-Clause"),
        (None, "Copyright (c) 2015, somebody. " * 9, ("License :: OSI Approved :: BSD License",), "BSD"),
        (None, "LicenseRef-NVIDIA-Proprietary", ("License :: Other/Proprietary License",),
         "LicenseRef-NVIDIA-Proprietary"),
        (None, "UNKNOWN", ("License :: OSI Approved :: MIT License", "License :: DFSG approved"), "MIT"),
        (None, None, NO_CLASSIFIERS, UNSTATED),
    ],
)  # fmt: skip
def test_the_best_source_of_the_metadata_counts(
    expression: str | None, name: str | None, classifiers: tuple[str, ...], licence: str
) -> None:
    assert stated(expression, name, classifiers) == licence


def test_a_list_without_the_build_for_the_cpu_keeps_everything_else() -> None:
    # A folder with the CPU build needs no other torch, and none of CUDA's libraries.
    rest = wheels.wanted(RUN, cpu=True)
    assert read(RUN).keys() - rest.keys() == read(CPU).keys()
    assert wheels.wanted(RUN, cpu=False).keys() == read(RUN).keys() | read(CUDA).keys()


def test_the_bill_of_materials_is_valid_and_has_every_version_with_its_files() -> None:
    pytest.importorskip("cyclonedx", reason="the extra supply is not installed: make lock")
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    from supply import sbom

    text = sbom.text_of(sbom.bill())
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    assert text == sbom.text_of(sbom.bill())
    document = json.loads(text)
    parts = {part["name"]: part for part in document["components"]}
    locked = read(RUN) | read(CUDA)
    assert {name: part["version"] for name, part in parts.items()} == {n: pin.version for n, pin in locked.items()}
    for name, part in parts.items():
        (files,) = part["externalReferences"]
        assert {one["content"] for one in files["hashes"]} == set(locked[name].hashes)
        assert part["purl"] == f"pkg:pypi/{name}@{locked[name].version}"
        assert part["scope"] == ("optional" if name in read(CUDA) else "required")
    needs = {one["ref"]: one.get("dependsOn", []) for one in document["dependencies"]}
    assert {"torch", "grpcio"} <= set(needs[DISTRIBUTION])
    assert set(needs) == {DISTRIBUTION, *parts}
