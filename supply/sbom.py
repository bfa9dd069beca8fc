"""The bill of materials of what both programs install, in CycloneDX form: `make sbom`.

Made of the locked lists, the licences and the metadata of what is installed here; without a clock and without
randomness, so the same versions give the same bytes. Libraries for CUDA are in it as optional.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import sys
import tomllib
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from fedfair.version import __version__
from supply.licences import UNSTATED, Licence, known
from supply.lock import EXTRAS
from supply.pins import CUDA, ROOT, RUN, Pin, normal, read

_NAME = re.compile(r"^[A-Za-z0-9._-]+")
_NAMESPACE = uuid.UUID("5a4cfb4e-3e35-5b1f-9b6c-1c3b7d0a2f11")
"""Any fixed one: the serial number follows from it and from the versions."""


def bill() -> Bom:
    """Return the bill of materials.

    Raises:
        KeyError: a locked distribution has no licence in the file; `make lock` puts it there.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [
        *project["dependencies"],
        *(one for name in EXTRAS[RUN] for one in project["optional-dependencies"][name]),
    ]
    run, cuda, licences = read(RUN), read(CUDA), known()
    own = Component(
        name=project["name"],
        version=__version__,
        type=ComponentType.APPLICATION,
        description=project["description"],
        licenses=[LicenseFactory().make_with_expression(project["license"])],
        purl=PackageURL("pypi", name=project["name"], version=__version__),
        bom_ref=project["name"],
    )
    parts = {name: _component(pin, licences[name], ComponentScope.REQUIRED) for name, pin in run.items()}
    parts |= {name: _component(pin, licences[name], ComponentScope.OPTIONAL) for name, pin in cuda.items()}
    serial = uuid.uuid5(_NAMESPACE, "\n".join(pin.line() for pin in (*run.values(), *cuda.values())))
    bom = Bom(components=parts.values(), serial_number=serial)
    bom.metadata.component = own
    bom.register_dependency(own, [parts[name] for name in _names(wanted) if name in parts])
    for name, part in parts.items():
        bom.register_dependency(part, [parts[other] for other in sorted(_needed(name)) if other in parts])
    return bom


def text_of(bom: Bom) -> str:
    """Return a bill of materials as JSON, without the time at which it was written."""
    document = json.loads(JsonV1Dot6(bom).output_as_string())
    del document["metadata"]["timestamp"]
    return json.dumps(document, indent=2) + "\n"


def _component(pin: Pin, licence: Licence, scope: ComponentScope) -> Component:
    address = PackageURL("pypi", name=pin.name, version=pin.version)
    files = [HashType(alg=HashAlgorithm.SHA_256, content=digest) for digest in pin.hashes]
    return Component(
        name=pin.name,
        version=pin.version,
        scope=scope,
        type=ComponentType.LIBRARY,
        licenses=[] if licence.licence == UNSTATED else [LicenseFactory().make_from_string(licence.licence)],
        purl=address,
        bom_ref=pin.name,
        external_references=[
            ExternalReference(
                type=ExternalReferenceType.DISTRIBUTION,
                url=XsUri(address.to_string()),
                comment="one of these files, by its hash",
                hashes=files,
            )
        ],
    )


def _needed(name: str) -> set[str]:
    """Return what a distribution that is installed here needs, extras aside; nothing for one that is not."""
    try:
        asked = importlib.metadata.requires(name) or []
    except importlib.metadata.PackageNotFoundError:
        return set()
    return set(_names(words for words in asked if "extra ==" not in words))


def _names(requirements: Iterable[str]) -> Iterator[str]:
    for words in requirements:
        found = _NAME.match(words)
        if found is not None:
            yield normal(found[0])


def main() -> None:
    """Write the bill of materials to the path of the first word."""
    target = Path(sys.argv[1])
    target.parent.mkdir(parents=True, exist_ok=True)
    bom = bill()
    target.write_text(text_of(bom), encoding="utf-8")
    sys.stdout.write(f"{target}: {len(bom.components)} components\n")


if __name__ == "__main__":
    main()
