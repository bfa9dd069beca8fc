"""The committed protobuf code is what the contract generates."""

from __future__ import annotations

from pathlib import Path

import pytest
from grpc_tools import protoc

ROOT = Path(__file__).parents[2]
GENERATED = ROOT / "fedfair" / "wire" / "v1"


@pytest.mark.parametrize("name", ["federation_pb2.py", "federation_pb2.pyi"])
def test_the_generated_code_has_not_drifted(name: str, tmp_path: Path) -> None:
    options = [f"-I{ROOT / 'proto'}", f"--python_out={tmp_path}", f"--pyi_out={tmp_path}"]
    assert protoc.main(["", *options, "fedfair/v1/federation.proto"]) == 0
    fresh = (tmp_path / "fedfair" / "v1" / name).read_bytes()
    assert (GENERATED / name).read_bytes() == fresh, "run `make generate` and commit what it changes"
