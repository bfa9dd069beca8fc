"""Makes a process behave as if only the base install were there: what an extra brings cannot be imported."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from fedfair.extras import EXTRAS


class Uninstalled:
    """Finds no library of an extra."""

    def find_spec(self, name: str, _path: Sequence[str] | None = None, _target: object = None) -> None:
        library = name.partition(".")[0]
        if library in EXTRAS:
            raise ModuleNotFoundError(f"No module named {name!r}", name=library)


sys.meta_path.insert(0, Uninstalled())
