"""Freed memory is used again, where the C library can keep it; in a process of its own, because it is for good."""

import subprocess
import sys

import pytest

from fedfair.process.kept_memory import keep_freed_memory

CODE = """
import resource
from fedfair.process.kept_memory import keep_freed_memory, nothing_kept

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

kept = keep_freed_memory(40_000_000)
bytearray(40_000_000)
before = faults()
for _ in range(5):
    bytearray(40_000_000)
again = faults() - before
with nothing_kept(40_000_000):
    bytearray(40_000_000)
    bytearray(40_000_000)
given_back = faults() - before - again
bytearray(40_000_000)
before = faults()
bytearray(40_000_000)
print(int(kept), again, given_back, faults() - before)
"""


def test_memory_that_was_freed_is_not_taken_from_the_system_again() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], check=True, capture_output=True, text=True)
    kept, again, given_back, kept_again = (int(word) for word in done.stdout.split())
    # 40 MB have nearly ten thousand pages; five times as many would be faults without it.
    assert not kept or again < 2000
    assert not kept or given_back > 15000
    assert not kept or kept_again < 500


@pytest.mark.parametrize("model_bytes", [1 << 20, 1 << 27, 1 << 40])
def test_a_short_model_needs_nothing_of_the_kind_and_a_very_long_one_is_too_dear(model_bytes: int) -> None:
    assert not keep_freed_memory(model_bytes)
