"""A proposed study as the people of a site read it before they decide: in parts, beside the study before it.

What a plan's own code takes part in (the data check, the digest) is looked at in another process: the one that
shows a study to people may soon hold a person's key.

No public names.
"""
