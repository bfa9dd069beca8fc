"""A passport: one signed file of all that is shown about a model, each statement with the files that show it.

    document       the file, its one spelling, and its context as JSON-LD
    evidence       the files beside it, read once
    requirements   what laws and model cards ask for, and which statements answer
    statements/    a room for each statement: what it says, computed from the evidence alone
    table          the list of these rooms; nothing else names one
    issue, check   make a passport of evidence, and compute all of it again

No public names.
"""
