"""Write secagg.json: known answers of FF-SecAgg v2, computed without the code under test.

Independent on purpose: nothing of fedfair is imported, and where fedfair uses one cryptographic library this uses
another (pycryptodome, kyber-py, and hmac and hashlib of the standard library). Run it with the path to
write to; the test suite runs it and compares. Randomness of site u is the stream SHA-256("site u" || counter) of
4-byte counters, taken in the order in which the specification draws it.
"""

import hashlib
import hmac
import json
import math
import struct
import sys
from pathlib import Path

from Crypto.Cipher import AES
from Crypto.Protocol.DH import key_agreement
from Crypto.PublicKey import ECC
from Crypto.Signature import eddsa
from kyber_py.ml_kem import ML_KEM_768

P = 2**255 - 19
PLAN, STATE, REQUEST = (hashlib.sha256(word).digest() for word in (b"plan", b"model", b"sum"))
UPDATES = {  # weight, header value, body: small enough to check by hand
    1: (3, 0.5, [0.25, -0.5, 1.0, 0.0, -2.0]),
    2: (1, -1.0, [1.0, 1.0, 1.0, 1.0, 1.0]),
    3: (4, 0.0, [-1.0, 0.125, 0.0, 0.5, 0.75]),
}
MEMBERS, COLLUDERS, MAX_WEIGHT, CLIP, RING_BITS = 3, 0, 4, 1.0, 32
NEIGHBOURS = 1  # as few as are safe; of so few members, all


class Stream:
    """SHA-256 in counter mode."""

    def __init__(self, seed: bytes) -> None:
        self.seed, self.counter, self.left = seed, 0, b""

    def __call__(self, size: int) -> bytes:
        while len(self.left) < size:
            self.left += hashlib.sha256(self.seed + struct.pack(">I", self.counter)).digest()
            self.counter += 1
        taken, self.left = self.left[:size], self.left[size:]
        return taken


def enc(label: str, *fields: bytes) -> bytes:
    body = b"".join(struct.pack(">I", len(field)) + field for field in fields)
    return b"fedfair/secagg/v2/" + label.encode() + b"\0" + struct.pack(">I", len(fields)) + body


def h(label: str, *fields: bytes) -> bytes:
    return hashlib.sha256(enc(label, *fields)).digest()


def hkdf(key: bytes, info: bytes, length: int, salt: bytes = b"") -> bytes:
    pseudo = hmac.new(salt or bytes(32), key, hashlib.sha256).digest()
    out = block = b""
    for counter in range(1, -(-length // 32) + 1):
        block = hmac.new(pseudo, block + info + bytes([counter]), hashlib.sha256).digest()
        out += block
    return out[:length]


def ctr(key: bytes, size: int) -> bytes:
    return AES.new(key, AES.MODE_CTR, nonce=b"", initial_value=bytes(16)).encrypt(bytes(size))


def u16(value: int) -> bytes:
    return struct.pack(">H", value)


def split(secret: bytes, points: list[int], threshold: int, draw: Stream) -> list[bytes]:
    coefficients = [int.from_bytes(secret, "big")]
    while len(coefficients) < threshold:
        number = int.from_bytes(draw(32), "big") >> 1
        if number < P:
            coefficients.append(number)
    return [
        (sum(c * pow(x, power, P) for power, c in enumerate(coefficients)) % P).to_bytes(32, "big") for x in points
    ]


def identity(index: int) -> ECC.EccKey:
    return eddsa.import_private_key(hashlib.sha256(b"site %d" % index).digest())


def sign(index: int, label: str, *fields: bytes) -> bytes:
    return eddsa.new(identity(index), "rfc8032").sign(enc(label, *fields))


def ephemeral(seed: bytes) -> tuple[ECC.EccKey, bytes]:
    from Crypto.Protocol.DH import import_x25519_private_key

    key = import_x25519_private_key(seed)
    return key, key.public_key().export_key(format="raw")


def body_elements(index: int, draw_key: bytes) -> list[int]:
    weight, _, body = UPDATES[index]
    bits = math.floor(math.log2((2 ** (RING_BITS - 1) - 1) // MEMBERS))
    uniform, elements = struct.unpack("<5H", ctr(draw_key, 10)), []
    for value, u in zip(body, uniform, strict=True):
        scaled = max(-CLIP, min(CLIP, value)) / CLIP * weight / MAX_WEIGHT * 2 ** (bits + 16)
        elements.append((round(scaled) + u) >> 16)
    return elements


def header_elements(index: int) -> list[int]:
    weight, value, body = UPDATES[index]
    largest, buckets = max(abs(v) for v in body), [0] * 32
    buckets[31 - (11 - math.frexp(largest)[1])] = 1
    clipped = sum(abs(v) > CLIP for v in body)
    bits, exponent = math.floor(math.log2((2**63 - 1) // MEMBERS)), math.frexp(100.0)[1]
    replaced, sites_with_replaced = 0, 0  # every value is a number that can be summed
    return [weight, 1, replaced, sites_with_replaced, clipped, *buckets, round(value * 2 ** (bits - exponent))]


def hybrid() -> dict[str, object]:
    """Members 1 and 2 agree on CK_0 by X25519 and ML-KEM-768; member 1 seals for member 2."""
    seeds = {i: Stream(b"hybrid site %d" % i)(32 + 64) for i in (1, 2)}
    session, message = hashlib.sha256(b"hybrid session").digest(), hashlib.sha256(b"hybrid message").digest()
    private, public = {}, {}
    for i, seed in seeds.items():
        private[i], x25519 = ephemeral(seed[:32])
        public[i] = x25519 + ML_KEM_768.key_derive(seed[32:])[0]
    sealed, ciphertext = ML_KEM_768._encaps_internal(public[2][32:], message)
    shared = key_agreement(eph_priv=private[1], eph_pub=private[2].public_key(), kdf=lambda x: x)
    chain = hkdf(shared + sealed, enc("pair", u16(1), u16(2), public[1], public[2], ciphertext), 32, session)
    transcript = hashlib.sha256(b"hybrid round").digest()
    return {
        "seeds": {str(i): seed.hex() for i, seed in seeds.items()},
        "public_keys": {str(i): hashlib.sha256(key).hexdigest() for i, key in public.items()},
        "session_id": session.hex(),
        "ciphertext": ciphertext.hex(),
        "sealed": sealed.hex(),
        "transcript": transcript.hex(),
        "mask_seed": hkdf(hkdf(chain, enc("next"), 32), enc("mask", transcript), 31).hex(),
    }


def listed(pairs: list[tuple[int, bytes]]) -> bytes:
    return u16(len(pairs)) + b"".join(u16(j) + struct.pack(">I", len(v)) + v for j, v in pairs)


def shared_secret(private: ECC.EccKey, other: ECC.EccKey) -> bytes:
    return key_agreement(eph_priv=private, eph_pub=other.public_key(), kdf=lambda x: x)


def siv(seed: bytes, shared: bytes, session: bytes, sender: int, receiver: int) -> bytes:
    """Seal a check seed."""
    key = hkdf(shared, enc("check-seed", u16(sender), u16(receiver)), 64, session)
    cipher = AES.new(key, AES.MODE_SIV)
    cipher.update(enc("check-seed", session, u16(sender), u16(receiver), b""))
    sealed, tag = cipher.encrypt_and_digest(seed)
    return tag + sealed


def check_tag(key: bytes, header: list[int], body: list[int], members: list[int]) -> int:
    """Return the tag of a contribution, or of a sum, with the pads of `members`: one number after the other."""
    prime, block = 2**127 - 1, 65536

    def numbers(label: str, count: int) -> tuple[int, ...]:
        return struct.unpack(f"<{count}Q", ctr(hkdf(key, enc(f"sum-check/{label}"), 32), 8 * count))

    inner = numbers("inner", min(len(body), block))
    outer = numbers("blocks", -(-len(body) // block))
    tag = sum(w * value for w, value in zip(numbers("header", len(header)), header, strict=True))
    tag += sum(outer[at // block] * inner[at % block] * value for at, value in enumerate(body))
    pads = (int.from_bytes(hkdf(key, enc("sum-check/pad", u16(i)), 32), "big") for i in members)
    return (tag + sum(pads)) % prime


def long_check_tag() -> int:
    """Return the tag of a body of two blocks and a part of a third, with numbers at both ends of the ring."""
    raw = ctr(hashlib.sha256(b"long body").digest(), 4 * 131077)
    body = [*struct.unpack("<131077i", raw)]
    body[0], body[65536], body[131076] = -(2**31), 2**31 - 1, -1
    return check_tag(hashlib.sha256(b"long key").digest(), [2**63 - 1, -(2**63), 0], body, [1, 65535])


def main() -> dict[str, object]:  # noqa: PLR0915 - one session from its first to its last byte
    members, threshold = list(range(1, MEMBERS + 1)), (MEMBERS + COLLUDERS) // 2 + 1
    keys = {i: identity(i).public_key().export_key(format="raw") for i in members}
    roster = h("roster", *(part for i in members for part in (u16(i), b"clinic-%d" % i, keys[i])))
    shape = h("shape", struct.pack(">Id", 1, 100.0) + b"\0", struct.pack(">I", 5), b"\x01")
    layout = h("layout", b"training", shape)
    proposal = b"\x02\x01" + bytes([1, 1]) + u16(COLLUDERS) + u16(threshold) + bytes([RING_BITS])
    proposal += (
        struct.pack(">Q", MAX_WEIGHT) + b"\x01" + u16(NEIGHBOURS) + PLAN + roster + layout + Stream(b"server")(32)
    )

    draw = {i: Stream(b"site %d" % i) for i in members}
    private, public, nonce, check_seed = {}, {}, {}, {}
    for i in members:
        private[i], public[i] = ephemeral(draw[i](32))
        nonce[i], check_seed[i] = draw[i](32), draw[i](32)
    about = h("proposal", proposal)
    advertised = {
        i: (public[i], nonce[i], h("seed-commitment", about, u16(i), check_seed[i]), STATE) for i in members
    }
    adverts = {
        i: b"\x02\x02" + u16(i) + struct.pack(">I", 32) + b"".join(advertised[i])
        + sign(i, "advert", about, u16(i), *advertised[i])
        for i in members
    }  # fmt: skip
    leaves = [h("member", u16(i), *advertised[i]) for i in members]
    root = h("members", leaves[0], h("members", leaves[1], leaves[2]))  # of three, two are on the right
    session, confirms = h("session", proposal, b"".join(map(u16, members)), root), {}
    for i in members:
        peers = [j for j in members if j != i]
        boxes = [(j, siv(check_seed[i], shared_secret(private[i], private[j]), session, i, j)) for j in peers]
        signed = h("sealed", *(part for j, box in boxes for part in (u16(j), box)))
        confirms[i] = b"\x02\x04" + u16(i) + session + signed + listed(boxes)
        confirms[i] += sign(i, "confirm", session, u16(i), signed)
    check_key = hkdf(b"".join(u16(i) + check_seed[i] for i in members), enc("check-key"), 32, session)

    transcript = h(
        "round", session, struct.pack(">Q", 1), b"training", b"".join(map(u16, members)),
        struct.pack(">I", threshold), STATE, REQUEST, struct.pack(">d", CLIP), shape,
    )  # fmt: skip
    round_key, chain1 = hkdf(check_key, enc("sum-check", transcript), 32), {}
    for i in members:
        for j in members[i:]:
            shared = shared_secret(private[i], private[j])
            chain0 = hkdf(shared, enc("pair", u16(i), u16(j), public[i], public[j], b""), 32, session)
            chain1[i, j] = chain1[j, i] = hkdf(chain0, enc("next"), 32)
    seed = {pair: hkdf(chain, enc("mask", transcript), 31) for pair, chain in chain1.items()}

    handed_over: dict[int, dict[int, bytes]] = {}
    uploads, vectors, tags_of, opened_header, opened_body = {}, {}, {}, [0] * 42, [0] * 5
    for i in members:
        peers = [j for j in members if j != i]
        own, rounding = draw[i](31), draw[i](32)
        shares = dict(zip(members, split(own, members, threshold, draw[i]), strict=True))
        header, body = header_elements(i), body_elements(i, rounding)
        tags_of[i] = check_tag(round_key, header, body, [i])
        header[37:37] = [tags_of[i] >> 32 * place & 0xFFFFFFFF for place in range(4)]
        opened_header = [(x + y) % 2**64 for x, y in zip(opened_header, header, strict=True)]
        opened_body = [x + y for x, y in zip(opened_body, body, strict=True)]
        for sign_, secret in ((1, own), *((1 if j > i else -1, seed[i, j]) for j in peers)):
            stream = struct.unpack(f"<{len(header)}Q", ctr(hkdf(secret, enc("ctr-key/hdr"), 32), 8 * len(header)))
            header = [(x + sign_ * m) % 2**64 for x, m in zip(header, stream, strict=True)]
            stream = struct.unpack("<5I", ctr(hkdf(secret, enc("ctr-key/body"), 32), 20))
            body = [(x + sign_ * m) % 2**32 for x, m in zip(body, stream, strict=True)]
        packed = struct.pack(f"<{len(header)}Q", *header), struct.pack("<5I", *body)
        vectors[i] = packed[0] + packed[1]
        # One frame carries it all: field 3, a length, field 1, a length; both lengths are of two bytes here.
        size = len(vectors[i])
        inner, outer = ([number & 0x7F | 0x80, number >> 7] for number in (size, size + 3))
        carried = hashlib.sha256(bytes([0x1A, *outer, 0x0A, *inner]) + vectors[i]).digest()
        vector_hash = h("vector", struct.pack(">Q", size), carried)
        promise = h("commitment", transcript, u16(i), own)
        tags, boxes = [(j, hkdf(seed[i, j], enc("tag", transcript), 16)) for j in peers], []
        for j in peers:
            key = hkdf(chain1[i, j], enc("env", transcript, u16(i), u16(j)), 64)
            cipher = AES.new(key, AES.MODE_SIV)
            cipher.update(enc("env", transcript, u16(i), u16(j)))
            sealed, tag = cipher.encrypt_and_digest(shares[j])
            boxes.append((j, tag + sealed))
        promised = [(j, h("share", transcript, u16(i), u16(j), shares[j])[:8]) for j in members]
        pads = ctr(hkdf(own, enc("pair-masks", transcript, u16(i)), 32), 32 * (max(peers) + 1))
        handed_over[i] = {j: bytes(x ^ y for x, y in zip(seed[i, j], pads[32 * j :], strict=False)) for j in peers}
        signature = sign(
            i, "upload", transcript, u16(i), vector_hash, promise,
            h("tags", *(part for j, tag in tags for part in (u16(j), tag))),
            h("envelopes", *(part for j, box in boxes for part in (u16(j), box))),
            h("share digests", *(part for j, found in promised for part in (u16(j), found))),
        )  # fmt: skip
        pairs = b"".join(listed(found) for found in (tags, boxes, promised))
        uploads[i] = b"\x02\x07" + transcript + u16(i) + vector_hash + promise + pairs + signature
    words, places = struct.pack("<42Q", *opened_header), sum(1 << i for i in members)
    opened = b"\x02\x0c" + transcript + u16((places.bit_length() + 7) // 8)
    opened += places.to_bytes((places.bit_length() + 7) // 8, "little")
    opened += struct.pack(">I", len(words)) + words
    whole = [x - 2**64 if x >> 63 else x for x in opened_header]
    tag = check_tag(round_key, whole[:37] + whole[41:], opened_body, members)
    limbs = sum(limb << 32 * place for place, limb in enumerate(whole[37:41]))
    if tag != limbs % (2**127 - 1):
        raise SystemExit("the tags of the contributions do not add up to the tag of their sum")

    return {
        "provenance": "tests/vectors/make_secagg_vectors.py; pycryptodome, kyber-py, the standard library only",
        "hybrid": hybrid(),
        "enc": enc("label", b"", b"ab", b"\0").hex(),
        "digest": h("label", b"", b"ab", b"\0").hex(),
        "roster": roster.hex(),
        "layout": layout.hex(),
        "proposal": proposal.hex(),
        "adverts": {str(i): raw.hex() for i, raw in adverts.items()},
        "session_id": session.hex(),
        "confirms": {str(i): raw.hex() for i, raw in confirms.items()},
        "check_key": check_key.hex(),
        "transcript": transcript.hex(),
        "round_key": round_key.hex(),
        "check_tags": {str(i): f"{tag:032x}" for i, tag in tags_of.items()},
        "long_check_tag": f"{long_check_tag():032x}",
        "opened": opened.hex(),
        "opened_body": struct.pack("<5i", *opened_body).hex(),
        "uploads": {str(i): raw.hex() for i, raw in uploads.items()},
        "handed_over_masks": {
            str(i): {str(j): mask.hex() for j, mask in masks.items()} for i, masks in handed_over.items()
        },
        "vectors": {str(i): raw.hex() for i, raw in vectors.items()},
        "header_sum": [sum(column) for column in zip(*(header_elements(i) for i in members), strict=True)][-1],
    }


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(main(), indent=1) + "\n")
