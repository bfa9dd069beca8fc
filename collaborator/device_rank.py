"""A process of a site that computes with the first one, for a GPU of its own: it sends nothing and writes nothing.

It reads the plan and the records, as the first process does, and calls `follow`. It has no link, no keys, no
ledger and no folder of state.
"""

from __future__ import annotations

import signal

from collaborator.preparation import PreparedSite, computing_client, read_records
from fedfair.errors import FedfairError, LocalProtocolError
from fedfair.training.across_devices import SiteProcesses, follow
from fedfair.training.binding import plan_binding
from fedfair.training.device import set_threads


def compute_along(site: PreparedSite, processes: SiteProcesses) -> bool:
    """Compute with the first process until it ends.

    Args:
        site: what was read of it.
        processes: those of this site, of which this is not the first.

    Returns:
        Whether the first process said that it ends; where it did not, it has said why.

    Raises:
        FedfairError: records or model cannot be loaded.
    """
    # The first process takes a signal for all, and ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    binding = plan_binding(site.plan, site.code.folder)
    set_threads(site.config.threads, binding.vector.size)
    records = read_records(site)
    client, group = computing_client(site, binding, records, None, processes)
    if group is None:
        raise LocalProtocolError("a process that computes along has no group")
    try:
        follow(client, group)
    except FedfairError:
        return False
    group.end()
    return True
