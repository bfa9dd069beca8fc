"""A federation that stands: who its members are, what they have done, and where each study is.

Pure: bytes in, values out; no clock, socket or tensor. The hub writes the record that everybody reads, and it can
neither invent an act, nor take one back, nor show two members different pasts for long without being noticed.

No public names.
"""
