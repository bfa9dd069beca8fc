"""Other systems' workspaces, read as text and turned into fedfair's files; nothing of theirs is ever run.

No public names.
"""
