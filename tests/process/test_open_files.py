"""A process that may open too few files says so, instead of being aborted by a library."""

import resource

import pytest

from fedfair.errors import FedfairError
from fedfair.process.open_files import allow_open_files


def test_an_aggregator_of_many_sites_may_open_a_file_for_each_of_them() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    few, more = min(500, soft), min(600, soft)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (few, hard))
        allow_open_files(more, few, "the aggregator")
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == more
        allow_open_files(few, few, "the aggregator")
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == more, "what there is already is never taken away"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_limit_that_the_system_does_not_raise_is_refused_with_both_numbers() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        pytest.skip("this system has no limit")
    with pytest.raises(
        FedfairError, match=f"have {hard} files open; the site needs at least {hard + 1}"
    ) as refusal:
        allow_open_files(hard + 1, hard + 1, "the site")
    assert f"ulimit -n {hard + 1}" in refusal.value.remedy
