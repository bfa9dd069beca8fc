"""The committed protobuf code is what the contract generates, by a compiler whose code protobuf 6 and 7 accept."""

import re
from pathlib import Path

import pytest
from grpc_tools import protoc

ROOT = Path(__file__).parents[2]
GENERATED = ROOT / "fedfair" / "wire" / "v1"
CONTRACTS = ("federation", "hub")
OLDEST = "6.31.1"
"""The runtime that the code asks for; a runtime accepts code of its own and of the last major version."""


def without_version(text: str) -> str:
    """Return generated code without what differs between versions of the compiler: no message does."""
    text = re.sub(r"# Protobuf Python Version: .*\n", "", text)
    text = re.sub(r"Domain\.PUBLIC,\n\s+\d+,\n\s+\d+,\n\s+\d+,", "Domain.PUBLIC,", text)
    return text.replace("_Optional[bool]", "bool")


@pytest.mark.parametrize("ending", ["py", "pyi"])
@pytest.mark.parametrize("contract", CONTRACTS)
def test_the_generated_code_has_not_drifted(contract: str, ending: str, tmp_path: Path) -> None:
    name = f"{contract}_pb2.{ending}"
    options = [f"-I{ROOT / 'proto'}", f"--python_out={tmp_path}", f"--pyi_out={tmp_path}"]
    assert protoc.main(["", *options, f"fedfair/v1/{contract}.proto"]) == 0
    fresh = (tmp_path / "fedfair" / "v1" / name).read_text()
    committed = (GENERATED / name).read_text()
    assert without_version(committed) == without_version(fresh), "run `make generate` and commit what it changes"


@pytest.mark.parametrize("contract", CONTRACTS)
def test_the_code_accepts_protobuf_6_and_7(contract: str) -> None:
    text = (GENERATED / f"{contract}_pb2.py").read_text()
    assert f"# Protobuf Python Version: {OLDEST}\n" in text, "run `make generate`"
    assert re.search(r"Domain\.PUBLIC,\s+6,\s+31,\s+1,", text)
