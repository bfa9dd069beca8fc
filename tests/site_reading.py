"""A site as its command reads it."""

from pathlib import Path

from collaborator.preparation import PreparedSite, find_site, keep_policy


def read_site(name: str | None, config_file: Path, plan_file: Path, approval: Path | None) -> PreparedSite:
    """Read the plan and the site's configuration, and hold the plan against the site's policy."""
    site = find_site(name, config_file, plan_file, approval)
    keep_policy(site)
    return site
