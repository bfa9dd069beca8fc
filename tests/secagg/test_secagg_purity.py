"""What must not be in the package, what a mask must look like, and what must be gone afterwards."""

from __future__ import annotations

import ast
import pickle
import secrets
from pathlib import Path

import numpy as np
import pytest

import fedfair.secagg
from fedfair.errors import LocalProtocolError
from fedfair.secagg.client import ConsistencyChecked, Contributing, MasksWrapped, Uploaded, erased
from fedfair.secagg.fixedpoint import BodyCode
from fedfair.secagg.history import History
from fedfair.secagg.keys import Secret
from fedfair.secagg.masking import SignedSeed, Update, masked_vector
from fedfair.secagg.messages import Kind
from fedfair.secagg.session import Agreed
from tests.attacks.harness import Lies
from tests.secagg.federation_in_memory import Wire, shape_of, terms_of, unit_update

SOURCES = sorted(Path(fedfair.secagg.__file__).parent.glob("*.py"))
BANNED = {"random", "torch", "time", "os", "grpc", "socket", "threading", "asyncio"}


def _names(path: Path) -> set[str]:
    """Return every imported module and every dotted name in a source file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Attribute):
            found.add(ast.unparse(node))
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_no_randomness_but_the_callers_is_near_a_mask(path: Path) -> None:
    names = _names(path)
    assert not {name for name in names if name.split(".")[0] in BANNED}
    assert not {name for name in names if name.startswith(("np.random", "numpy.random"))}
    assert not {name for name in names if "secrets" in name.split(".")}  # randomness is an argument


def test_a_masked_zero_looks_uniform() -> None:
    # Chi-squared over bytes, 255 degrees of freedom: mean 255, deviation sqrt(2 * 255) = 22.6; 400 is 6.4 of them.
    shape = shape_of(1 << 18, checked=False)
    code = BodyCode(32, 3, 1, shape.groups, (1.0,))
    update = Update(np.zeros(1), np.zeros(1 << 18, np.float32), 1)
    seeds = [SignedSeed(Secret(secrets.token_bytes(31)), negative) for negative in (False, True)]
    vector, _ = masked_vector(update, shape, code, seeds, Secret(secrets.token_bytes(32)))
    counts = np.bincount(np.frombuffer(vector, np.uint8), minlength=256)
    expected = len(vector) / 256
    assert ((counts - expected) ** 2 / expected).sum() < 400
    again, _ = masked_vector(update, shape, code, seeds, Secret(secrets.token_bytes(32)))
    assert again == vector  # zeros round to zeros, and the same seeds give the same mask


def test_secrets_neither_print_nor_pickle_nor_outlive_their_erasure() -> None:
    secret = Secret(b"x" * 32)
    assert repr(secret) == "Secret(32 bytes)"
    with pytest.raises(LocalProtocolError):
        pickle.dumps(secret)
    with pytest.raises(TypeError):
        hash(secret)
    secret.erase()
    assert secret.erased
    assert repr(secret) == "Secret(0 bytes)"
    with pytest.raises(LocalProtocolError):
        secret.reveal()


def test_no_phase_prints_a_secret() -> None:
    lies = Lies.in_session(3)
    site = lies.sites[1]
    for chain in site.session.chains.values():  # type: ignore[union-attr]
        assert repr(chain._key.reveal()) not in repr(site.session)
    site.receive(lies.start(), lies.model)
    phase = site.phase
    assert isinstance(phase, Contributing)
    for key in (*phase.seeds.values(), *phase.sending.values(), *phase.receiving.values()):
        assert repr(key.reveal())[2:-1] not in repr(phase)


def test_going_on_erases_what_the_phase_before_knew() -> None:
    lies = Lies.in_session(4)
    site = lies.sites[1]
    session = site.session
    assert session is not None
    before = [chain._key for chain in session.chains.values()]
    lies.server.start_round("training", lies.model, (1.0,), lies.roster.indices)
    lies.server.round -= 1
    site.receive(lies.start(), lies.model)
    assert all(key.erased for key in before)  # CK_0 is gone as soon as round 1 is entered
    contributing = site.phase
    assert isinstance(contributing, Contributing)
    site.contribute(unit_update(1, 4), bytes(32))
    assert all(key.erased for key in (*contributing.seeds.values(), *contributing.sending.values()))
    with pytest.raises(LocalProtocolError, match="erased"):
        contributing.upload(unit_update(1, 4), bytes(32), History({}), secrets.token_bytes)
    assert isinstance(site.phase, Uploaded)
    assert not erased(site.phase)


def test_the_masks_with_others_are_gone_once_the_vote_is_given() -> None:
    lies = Lies.after_uploads(4)
    uploaded = lies.sites[1].phase
    assert isinstance(uploaded, Uploaded)
    assert uploaded.masks is not None
    lies.masks_of(1, (1, 2, 3))
    seeds = tuple(uploaded.masks.values())
    assert not any(seed.erased for seed in seeds)  # somebody else may vanish
    lies.vote_of(1, (1, 2, 3))
    assert all(seed.erased for seed in seeds)


def test_after_a_round_nothing_of_it_is_left() -> None:
    wire = Wire(4, terms_of(4), {"training": shape_of(4)})
    wire.set_up()
    phases: list[Uploaded | MasksWrapped | ConsistencyChecked] = []
    original = wire.hand_over

    def watch(member: int, message: bytes) -> list[object]:
        before = wire.sites[member].phase
        if isinstance(before, Uploaded | MasksWrapped | ConsistencyChecked):
            phases.append(before)
        return list(original(member, message))

    wire.hand_over = watch  # type: ignore[assignment, method-assign]
    wire.silent = {(4, Kind.UPLOAD)}
    assert wire.round({m: unit_update(m, 4) for m in (1, 2, 3, 4)}) is not None
    assert len(phases) == 9  # three handed over masks, three voted, three answered
    assert all(erased(phase) for phase in phases)
    assert all(erased(site.phase) for m, site in wire.sites.items() if m != 4 and site.phase is not None)
    left_out = wire.sites[4].phase
    assert isinstance(left_out, Uploaded)
    wire.sites[4].drop_out()
    assert erased(left_out)


def test_a_session_that_is_left_is_erased() -> None:
    lies = Lies.in_session(3)
    session = lies.sites[1].session
    assert session is not None
    chains = list(session.chains.values())
    lies.set_up()
    assert all(chain.erased for chain in chains)
    assert not isinstance(lies.sites[1]._setup, Agreed)
