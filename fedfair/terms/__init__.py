"""How a step may be changed: each way is a room with what a run, a site and all sites at once do for it.

No public names.
"""
