"""A hub: one process and one port for all studies of a federation that stands.

It keeps the record of acts, takes archives in, and drives each study as `aggregator start` drives its one run: in
a folder, with a journal and limits of its own. No study's fault ends another one.

No public names.
"""
