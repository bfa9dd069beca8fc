"""How long a test waits for what must happen: so long that only a hang uses it up, however busy the machine is."""

from typing import Final

PATIENCE: Final = 840.0
"""Below the time limit of a test (`pyproject.toml`), so that its own words tell what it waited for."""
