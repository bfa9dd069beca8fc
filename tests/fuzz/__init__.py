"""A structure-aware fuzzer of every message and file that the product reads; `make fuzz` runs it."""
