"""Fixtures of the tests of predictions."""

import functools
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def operators_read_once() -> Iterator[None]:
    """Let torch read its table of ONNX operators once: that takes most of the time of an export."""
    from torch.onnx._internal.exporter._registration import ONNXRegistry

    with pytest.MonkeyPatch.context() as patched:
        once = functools.cache(ONNXRegistry.from_torchlib)
        patched.setattr(ONNXRegistry, "from_torchlib", staticmethod(once))
        yield
