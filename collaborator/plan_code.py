"""The code that a plan names, as this site will run it.

Where the site's policy names digests, the code is copied first, into a folder of this process alone: what is
digested, compared with the policy and imported is that copy, whatever happens to the workspace meanwhile. A policy
that allows any code takes it from the workspace itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedfair.plan.digest import code_digest
from fedfair.plan.module_code import code_digests
from fedfair.training.frozen_code import frozen_code


@dataclass(frozen=True, slots=True)
class PlanCode:
    """The path and the digest of a plan's code.

    Attributes:
        folder: what modules are looked for in.
        digest: 32 bytes, over all of it; None where the plan names none.
    """

    folder: Path
    digest: bytes | None


def plan_code(references: tuple[str, ...], workspace: Path, *, frozen: bool) -> PlanCode:
    """Return the code of a plan; none of it is run.

    Args:
        references: texts of the form "module:function".
        workspace: where they are looked for.
        frozen: whether to copy it first; the copy is removed when this process ends.

    Raises:
        PlanError: a module has no source in the workspace, or a file cannot be read.
    """
    if not references:
        return PlanCode(workspace, None)
    folder = frozen_code(references, workspace) if frozen else workspace
    return PlanCode(folder, code_digest(code_digests(references, folder)))
