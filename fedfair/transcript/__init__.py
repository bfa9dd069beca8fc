"""The witnessed transcript: a Merkle tree over the opened sums of a run, whose root all sites sign; and proofs.

No public names.
"""
