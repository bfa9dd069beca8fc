"""The aggregator process: carries frames between the network and the round rules, and decides nothing.

No public names.
"""
