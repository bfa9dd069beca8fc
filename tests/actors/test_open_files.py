from __future__ import annotations

import resource

from aggregator.mirror import _allow_files


def test_an_aggregator_of_many_sites_may_open_a_file_for_each_of_them() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    few, more = min(500, soft), min(600, soft)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (few, hard))
        _allow_files(more)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == more
        _allow_files(few)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == more, "what there is already is never taken away"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
