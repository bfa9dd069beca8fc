"""FF-SecAgg v2: the sum of many vectors, and nothing else, in front of an aggregator that may lie.

Sites hide their vectors under pairwise and own masks (Bonawitz et al. 2017), sign the keys they agree on with
keys that every site has pinned, bind every round to the model, the cohort and the parameters it is about, and
open the masks of at most one set of survivors. Everything here is pure: bytes in, effects out, randomness as
an argument; no socket, no clock, no file.

Where to look: `participant` is what a site drives, `server` what the aggregator drives; `params` says what is
guaranteed; `session`, `round_start` and `client` hold the phases of a site; `recovery` opens a sum; `shape` says
what is summed; `effects` what to do next; `checks` names every refusal.

No public names.
"""
