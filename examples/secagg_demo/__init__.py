"""`fedfair demo secagg`: secure aggregation before your eyes, with the real objects and real bytes, in memory.

Where to look: `digits` is what the clinics learn, `consortium` the clinics and an aggregator that follows the
protocol, `lies` one that does not; `story` plays it all and says what was found, `words`, `pictures` and `page`
show it. The command, `fedfair/cli/secagg_demo.py`, asks for the story and prints it. Nothing here decides anything
about the protocol.
"""
