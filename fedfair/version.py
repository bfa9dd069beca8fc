"""The version of the product: a leaf, so that a module which states it imports nothing else."""

from pathlib import Path

__version__ = "0.1.0"


def installed_version() -> str:
    """Return the version that a new process would have: another one where this one has outlived an upgrade."""
    text = Path(__file__).read_text(encoding="utf-8")
    return text.partition('__version__ = "')[2].partition('"')[0] or __version__
