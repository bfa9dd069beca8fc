"""The local part of each algorithm: from per-sample losses to what is sent backward."""
