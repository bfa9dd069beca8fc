"""The tests; what they share is imported as `tests.folder.module`, from wherever it is used."""
