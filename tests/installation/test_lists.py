"""The locked lists: every version exact, every file by its hash, nothing missing, nothing that nobody needs."""

import importlib.metadata
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from fedfair.extras import EXTRAS as EXTRA_OF_LIBRARY
from supply.lock import EXTRAS, SINGLE_EXTRAS, is_cuda, lists
from supply.pins import BASE, CPU, CUDA, DEVELOPMENT, ROOT, RUN, Pin, normal, parse, read, text_of

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROTOC = ROOT / "requirements" / "protoc.txt"
ZEROS, ONES = "0" * 64, "1" * 64


@pytest.mark.parametrize("path", [DEVELOPMENT, BASE, RUN, CUDA, CPU, PROTOC], ids=lambda path: path.name)
def test_every_line_has_one_version_and_at_least_one_hash(path: Path) -> None:
    pins = read(path)
    assert pins
    assert [pin.name for pin in pins.values() if not pin.hashes] == []
    assert path in {CPU, PROTOC} or path.read_text().endswith(text_of((), pins.values()))


def test_the_lists_agree_with_each_other() -> None:
    development, run, cuda, cpu = read(DEVELOPMENT), read(RUN), read(CUDA), read(CPU)
    assert read(BASE).items() <= run.items() <= development.items()
    assert not {"torch", "scipy", "pandas", "matplotlib"} & read(BASE).keys()
    assert development.keys() & cuda.keys() == set()
    assert all(is_cuda(name) for name in cuda)
    (torch,) = cpu.values()
    assert torch.version == f"{run['torch'].version}+cpu"
    assert set(torch.hashes) <= set(run["torch"].hashes)


def needed(requirements: Iterable[str], extra: str = "") -> Iterator[Requirement]:
    for words in requirements:
        requirement = Requirement(words)
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            yield requirement


def closure(requirements: Iterable[str]) -> dict[str, list[Requirement]]:
    """Return everything that is installed here and needed, with what each is asked for; as metadata state it."""
    asked: dict[str, list[Requirement]] = {}
    left = list(needed(requirements))
    seen: set[tuple[str, frozenset[str]]] = set()
    while left:
        requirement = left.pop()
        name, extras = normal(requirement.name), frozenset(requirement.extras)
        asked.setdefault(name, []).append(requirement)
        if (name, extras) in seen or is_cuda(name):
            continue
        seen.add((name, extras))
        try:
            own = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        for extra in ("", *extras):
            left += needed(own, extra)
    return asked


@pytest.mark.parametrize(
    ("path", "extras"), [*EXTRAS.items(), (DEVELOPMENT, tuple(PROJECT["project"]["optional-dependencies"]))],
    ids=["base", "run", "development"],
)  # fmt: skip
def test_a_list_has_everything_that_is_needed_in_a_version_that_fits(path: Path, extras: tuple[str, ...]) -> None:
    project = PROJECT["project"]
    wanted = [
        *project["dependencies"],
        *(one for extra in extras for one in project["optional-dependencies"][extra]),
    ]
    asked, pins = closure(wanted), read(path) | read(CUDA)
    assert asked.keys() - pins.keys() == set()
    wrong = {
        f"{name}: {requirement}" for name, each in asked.items() for requirement in each
        if not requirement.specifier.contains(pins[name].version, prereleases=True)
    }  # fmt: skip
    assert wrong == set()


@pytest.mark.parametrize(("path", "extra"), SINGLE_EXTRAS.items(), ids=SINGLE_EXTRAS.values())
def test_the_list_of_an_extra_has_what_it_needs_beside_the_base(path: Path, extra: str) -> None:
    pins, base, every = read(path), read(BASE), read(DEVELOPMENT)
    needed = closure(PROJECT["project"]["optional-dependencies"][extra])
    assert needed.keys() - pins.keys() - base.keys() - read(CUDA).keys() == set()
    assert pins.items() <= every.items()
    assert all(pin.hashes for pin in pins.values())
    assert path.read_text().endswith(text_of((), pins.values()))


def test_every_extra_that_a_command_may_ask_for_has_a_list() -> None:
    of_developers = {"docs", "supply", "test"}
    assert set(SINGLE_EXTRAS.values()) == set(PROJECT["project"]["optional-dependencies"]) - of_developers
    assert set(EXTRA_OF_LIBRARY.values()) <= set(SINGLE_EXTRAS.values())


def test_a_worked_list() -> None:
    more = f" \\\n    --hash=sha256:{ONES} \\\n    --hash=sha256:{ZEROS}"
    text = f"# heading\nB_c==1.0 ; sys_platform == 'linux'{more}\na==2\n"
    pins = parse(text)
    assert pins == {"b-c": Pin("b-c", "1.0", "sys_platform == 'linux'", (ZEROS, ONES)), "a": Pin("a", "2")}
    assert parse(text_of(["heading"], pins.values())) == pins


@pytest.mark.parametrize(
    ("text", "fault"),
    [("a>=2\n", "states no exact version"), ("a==1\nA==1\n", "twice"), ("-r other.txt\n", "no exact version")],
)
def test_a_list_that_pip_would_resolve_by_itself_is_refused(text: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        parse(text)


def test_the_lists_are_parts_of_one_and_allow_the_build_for_the_cpu() -> None:
    every = {name: Pin(name, "1", "", (ZEROS,)) for name in ("torch", "numpy", "pytest", "nvidia-nccl", "triton")}
    made = lists(
        every,
        {BASE: {"numpy"}, RUN: {"torch", "numpy", "nvidia-nccl"}},
        {"torch": Pin("torch", "1+cpu", "", (ONES,))},
    )
    assert {path: list(parse(text)) for path, text in made.items()} == {
        DEVELOPMENT: ["numpy", "pytest", "torch"],
        BASE: ["numpy"],
        RUN: ["numpy", "torch"],
        CUDA: ["nvidia-nccl", "triton"],
    }
    assert parse(made[RUN])["torch"].hashes == (ZEROS, ONES)
    with pytest.raises(ValueError, match=r"cpu.txt has torch 2\+cpu, and 1 is locked"):
        lists(every, {}, {"torch": Pin("torch", "2+cpu", "", (ONES,))})
