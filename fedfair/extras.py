"""Which extra brings which library: what a command says where a library is not installed.

The base install brings what the aggregator, audits, certificates, reports and plans need. All else is an extra of
`pyproject.toml`; a test compares this table with it. An extra is installed from a list with hashes, never by a
name: on the package index, another project is called fedfair. A leaf, so that `import fedfair` stays quick.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from types import MappingProxyType

EXTRAS: Mapping[str, str] = MappingProxyType(
    {
        "dp_accounting": "train",
        "opacus": "train",
        "pandas": "train",
        "PIL": "train",
        "scipy": "train",
        "sklearn": "train",
        "threadpoolctl": "train",
        "torch": "train",
        "matplotlib": "plots",
        "h11": "status",
        "prometheus_client": "status",
        "starlette": "page",
        "uvicorn": "page",
        "mlflow": "mlflow",
        "tensorboard": "tensorboard",
        "transformers": "text",
        "pyarrow": "parquet",
        "ray": "ray",
        "sqlalchemy": "sql",
        "duckdb": "sql",
        "duckdb_engine": "sql",
        "psycopg": "sql",
        "onnx": "onnx",
        "onnxruntime": "onnx",
        "onnxscript": "onnx",
    }
)
"""The extra of each importable package that the base install does not bring."""


def list_of(extra: str) -> str:
    """Return the path of an extra's list, from the folder of fedfair's source."""
    return f"requirements/extras/{extra}.txt"


def install_command(*extras: str) -> str:
    """Return the command that installs extras from their lists, in the folder of fedfair's source."""
    return f"pip install --no-deps --require-hashes {' '.join(f'-r {list_of(extra)}' for extra in extras)}"


def missing_extra(fault: BaseException) -> str:
    """Return in one line which library is missing and how to install it; empty for any other fault."""
    name = (fault.name or "").partition(".")[0] if isinstance(fault, ModuleNotFoundError) else ""
    if name not in EXTRAS:
        return ""
    return f"this needs {name}, which is not installed: {install_command(EXTRAS[name])}"


def is_installed(library: str) -> bool:
    """Return whether a package could be imported; it is not."""
    try:
        return importlib.util.find_spec(library) is not None
    except ModuleNotFoundError:
        return False
