"""The page on which the people of a site read a proposed study, and decide about it with their own passphrase.

Served on this machine, or under TLS elsewhere. There is no script on it, no file from outside, and no record.

No public names.
"""
