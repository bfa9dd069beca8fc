"""A plan's own code, copied before it is looked at: what is digested and what is imported are the same bytes.

The copy is in a folder of this process alone, and is removed when the process ends. Code of one digest is copied
once, since Python does not import a module of one name from two places.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path

from fedfair.plan.digest import code_digest
from fedfair.plan.module_code import code_digests, freeze

_COPIES: dict[bytes, Path] = {}


def frozen_code(references: tuple[str, ...], workspace: Path) -> Path:
    """Return the folder of a copy of every file that the references may run; none of it is run.

    Args:
        references: texts of the form "module:function".
        workspace: where they are looked for.

    Raises:
        PlanError: a module has no source in the workspace, or a file cannot be read.
    """
    folder = Path(tempfile.mkdtemp(prefix="fedfair-code-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    freeze(references, workspace, folder)
    digests = code_digests(references, folder)
    earlier = _COPIES.setdefault(code_digest(digests), folder)
    return earlier if code_digests(references, earlier) == digests else folder
