"""Real sites in one process that do together, once, what two or more of them compute alike.

Both members of a pair derive the same keys, and all sites verify the same public signatures. On machines of their
own each does so for itself. Here the second one takes what the first one found, so that a thousand sites fit into
one process. Shares are split in the basis of binomial coefficients: the same distribution, in fewer steps for
places that follow each other. Every message is the one that sites on machines of their own would send, and the
aggregator's side is left as it is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Self
from unittest import mock

from fedfair.secagg import client, keys, masking, session, sum_check
from fedfair.secagg.keys import Chain, EphemeralKey, Secret
from fedfair.secagg.prg import segment_key
from fedfair.secagg.shamir import PRIME, SHARE_BYTES, Randomness
from fedfair.secagg.shamir import split as plain_split
from fedfair.secagg.signing import Roster

SLOT_BYTES = 40
"""Of a difference: 255 bits, and 65 for the carries of as many steps."""
STEPS = 60
FEW_SHARES = 64


class ForgivingRoster(Roster):
    """Verifies each signature once."""

    __slots__ = ("_known",)

    def __init__(self, roster: Roster) -> None:
        super().__init__(roster._members.values())  # noqa: SLF001 - a copy
        self._known: set[tuple[object, ...]] = set()

    def verify(self, index: int, signature: bytes, label: str, *fields: bytes) -> None:
        seen = (index, signature, label, *map(hash, fields))
        if seen not in self._known:
            super().verify(index, signature, label, *fields)
            self._known.add(seen)

    def forget(self) -> None:
        """Forget what belongs to rounds that are over."""
        self._known.clear()


class OncePerPair:
    """Keeps a result until the other member of the pair has taken it."""

    def __init__(self) -> None:
        self._kept: dict[object, bytes] = {}

    def __call__(self, key: object, compute: Callable[[], Secret]) -> Secret:
        found = self._kept.pop(key, None)
        if found is None:
            secret = compute()
            self._kept[key] = secret.reveal()
            return secret
        return Secret(found)

    def forget(self) -> None:
        """Forget what nobody will take."""
        self._kept.clear()


class SharedChain:
    """The one chain of a pair, in the hands of both."""

    __slots__ = ("_chain", "_once")

    def __init__(self, chain: Chain, once: OncePerPair) -> None:
        self._chain = chain
        self._once = once

    @property
    def step(self) -> int:
        return self._chain.step

    def advance_to(self, step: int) -> None:
        self._chain.advance_to(step)

    def mask_seed(self, transcript: bytes) -> Secret:
        return self._once((id(self._chain), transcript), lambda: self._chain.mask_seed(transcript))

    def envelope_key(self, transcript: bytes, sender: int, receiver: int) -> Secret:
        key = (id(self._chain), transcript, sender)
        return self._once(key, lambda: self._chain.envelope_key(transcript, sender, receiver))

    def erase(self) -> None:
        """Leave it: the other member may need it still."""

    @property
    def erased(self) -> bool:
        return self._chain.erased


def split(secret: bytes, points: Sequence[int], threshold: int, randomness: Randomness) -> list[bytes]:
    """Return shares of a random polynomial with that value at 0, given by its differences at 0.

    Random differences are a random polynomial: one basis goes over into the other without any bit lost, modulo a
    prime above its degree. All differences step to the next point in one addition of long integers.
    """
    if threshold < FEW_SHARES:
        return plain_split(secret, points, threshold, randomness)
    differences = [int.from_bytes(secret, "big")]
    drawn = randomness(SHARE_BYTES * (threshold - 1))
    pieces = (drawn[start : start + SHARE_BYTES] for start in range(0, len(drawn), SHARE_BYTES))
    differences += [(int.from_bytes(piece, "big") >> 1) % PRIME for piece in pieces]
    wanted, shares = set(points), {}
    first = (1 << 8 * SLOT_BYTES) - 1
    packed = 0
    for point in range(max(points) + 1):
        if point % STEPS == 0:
            if point:
                raw = packed.to_bytes(SLOT_BYTES * threshold, "little")
                starts = range(0, len(raw), SLOT_BYTES)
                differences = [int.from_bytes(raw[at : at + SLOT_BYTES], "little") % PRIME for at in starts]
            packed = int.from_bytes(b"".join(d.to_bytes(SLOT_BYTES, "little") for d in differences), "little")
        if point in wanted:
            shares[point] = ((packed & first) % PRIME).to_bytes(SHARE_BYTES, "big")
        packed += packed >> 8 * SLOT_BYTES
    return [shares[point] for point in points]


class LightSites:
    """Makes the sites of this process light while it is entered."""

    def __init__(self) -> None:
        self._once = OncePerPair()
        self._known: dict[tuple[object, ...], bytes] = {}
        self.is_asleep = False
        self._entered = ExitStack()
        self._patches: list[AbstractContextManager[object]] = [
            mock.patch.object(session, "check_public_key", functools.lru_cache(4096)(keys.check_public_key)),
            mock.patch.object(session, "pair_chain", self._chain_of(keys.pair_chain)),
            mock.patch.object(EphemeralKey, "agree", self._agreed(EphemeralKey.agree)),
            mock.patch.object(client, "confirmation_tag", self._tag_of(keys.confirmation_tag)),
            mock.patch.object(client, "split", split),
            mock.patch.object(sum_check, "derive", self._known_to_all(keys.derive)),
            mock.patch.object(masking, "segment_key", self._segment_of(segment_key)),
        ]
        self._chains: dict[tuple[object, ...], Chain] = {}

    def __enter__(self) -> Self:
        for patch in self._patches:
            self._entered.enter_context(patch)
        return self

    def __exit__(self, *_: object) -> None:
        self._entered.close()

    def forget(self) -> None:
        """Forget what belongs to a round that is over."""
        self._once.forget()
        self._known.clear()

    def _chain_of(self, derived: Callable[..., Chain]) -> Callable[..., SharedChain]:
        def chain(*arguments: object) -> SharedChain:
            session_id, members = arguments[3], arguments[4]
            key = (session_id, members)
            known = self._chains.pop(key, None)
            if known is None:
                known = self._chains[key] = derived(*arguments)
            return SharedChain(known, self._once)

        return chain

    def _agreed(self, agree: Callable[[EphemeralKey, bytes], Secret]) -> Callable[[EphemeralKey, bytes], Secret]:
        def agreed(own: EphemeralKey, peer: bytes) -> Secret:
            return self._once(frozenset((own.public, peer)), lambda: agree(own, peer))

        return agreed

    def _tag_of(self, tag: Callable[[Secret, bytes], bytes]) -> Callable[[Secret, bytes], bytes]:
        def tagged(seed: Secret, transcript: bytes) -> bytes:
            return self._once(("tag", seed.reveal()), lambda: Secret(tag(seed, transcript))).reveal()

        return tagged

    def _known_to_all(self, derived: Callable[..., Secret]) -> Callable[..., Secret]:
        def known(secret: Secret, *context: object, **options: object) -> Secret:
            key = (secret.reveal(), *context, *options.values())
            if key not in self._known:
                self._known[key] = derived(secret, *context, **options).reveal()
            return Secret(self._known[key])

        return known

    def _segment_of(self, derived: Callable[[Secret, str], Secret]) -> Callable[[Secret, str], Secret]:
        def segment(seed: Secret, name: str) -> Secret:
            if self.is_asleep:
                return derived(seed, name)
            return self._once((name, seed.reveal()), lambda: derived(seed, name))

        return segment
