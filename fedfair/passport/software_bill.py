"""The bill of materials of the software that is installed here, in CycloneDX 1.6 form.

Lists fedfair and every distribution that its interpreter finds, by the metadata of the installation, without a
clock: the same installation gives the same bytes. `supply.sbom` makes the fuller one of a release, with
licences and hashes of files. Source: ECMA-424.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
from collections.abc import Iterable, Iterator

from fedfair.errors import PassportError
from fedfair.version import __version__

_NAME = re.compile(r"^[A-Za-z0-9._-]+")
_ROOT = "fedfair"


def software_bill() -> str:
    """Return the bill as JSON."""
    found = {_normal(one.name): one for one in importlib.metadata.distributions()}
    found.pop(_ROOT, None)
    needed = {name: sorted({*_needed(one.requires or ())} & found.keys()) for name, one in found.items()}
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": _component(_ROOT, __version__)},
        "components": [_component(name, found[name].version) for name in sorted(found)],
        "dependencies": [{"ref": name, "dependsOn": others} for name, others in sorted(needed.items())],
    }
    return json.dumps(document, indent=1) + "\n"


def parse_bill(raw: bytes, place: str) -> dict[str, str]:
    """Return the version of each component that a bill lists, by name; without what follows a plus sign.

    Args:
        raw: the file's content.
        place: the file, for the message.

    Raises:
        PassportError: it is no bill of materials in CycloneDX form, as JSON.
    """
    try:
        document = json.loads(raw)
        parts = {"CycloneDX": [*document.get("components", ()), document["metadata"]["component"]]}
        return {str(part["name"]): str(part["version"]).partition("+")[0] for part in parts[document["bomFormat"]]}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise PassportError(
            f"{place} is no bill of materials in CycloneDX form, as JSON",
            "give one that `make sbom` or a tool for CycloneDX has written",
        ) from error


def _component(name: str, version: str) -> dict[str, str]:
    kind = "application" if name == _ROOT else "library"
    return {
        "type": kind,
        "bom-ref": name,
        "name": name,
        "version": version,
        "purl": f"pkg:pypi/{name}@{version.replace('+', '%2B')}",
    }


def _needed(requirements: Iterable[str]) -> Iterator[str]:
    """Yield what a distribution needs, extras aside."""
    for words in requirements:
        found = _NAME.match(words)
        if found is not None and "extra ==" not in words:
            yield _normal(found[0])


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
