"""Archives of a workspace: reproducible, without secrets, and harmless to unpack whoever made them."""

import io
import os
import random
import stat
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from fedfair.errors import PlanError
from fedfair.plan.loading import load_plan
from fedfair.workspace.archive import MAX_FILES, MAX_MODEL_BYTES, MAX_TOTAL_BYTES, pack, read_archive, unpack
from fedfair.workspace.create import TEMPLATES, create_workspace, write_site_file
from tests.full_disk import full_beyond


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "heart"
    create_workspace(folder, "heart", "breast-cancer")
    (folder / "src" / "model.py").write_text("X = 1\n")
    (folder / "src" / "deep").mkdir()
    (folder / "src" / "deep" / "part.py").write_text("Y = 1\n")
    (folder / "plan" / "roster.yaml").write_text("{}\n")
    return folder


def archive(*members: tuple[str, bytes], mode: int = stat.S_IFREG | 0o644) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as target:
        for name, content in members:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            target.writestr(info, content)
    return stream.getvalue()


@pytest.mark.parametrize("template", list(TEMPLATES))
def test_every_template_is_a_good_plan(tmp_path: Path, template: str) -> None:
    create_workspace(tmp_path / "w", "heart", template)
    plan = load_plan(tmp_path / "w" / "plan" / "plan.yaml")
    assert plan.federation.name == "heart"
    assert plan.federation.collaborators == ("clinic-a", "clinic-b")


def test_an_archive_brings_plan_and_code_and_nothing_else(workspace: Path, tmp_path: Path) -> None:
    for private in (
        "cert/authority/ca.key",
        "data/all.csv",
        "save/last.safetensors",
        "src/.env",
        "src/__pycache__/x",
    ):
        (workspace / private).parent.mkdir(parents=True, exist_ok=True)
        (workspace / private).write_text("private")
    written = unpack(pack(workspace), tmp_path / "copy")
    assert {path.relative_to(tmp_path / "copy").as_posix() for path in written} == {
        "plan/plan.yaml", "plan/roster.yaml", "src/model.py", "src/deep/part.py",
    }  # fmt: skip
    for path in written:
        assert path.read_bytes() == (workspace / path.relative_to(tmp_path / "copy")).read_bytes()


@pytest.mark.parametrize("name", ["plan/plan.initial.safetensors", "plan/plan.initial.state"])
def test_a_run_s_beginning_travels_as_it_is_uncompressed(workspace: Path, tmp_path: Path, name: str) -> None:
    (workspace / name).write_bytes(bytes(1000))
    raw = pack(workspace)
    unpack(raw, tmp_path / "copy")
    assert (tmp_path / "copy" / name).read_bytes() == bytes(1000)
    assert bytes(1000) in raw
    with pytest.raises(PlanError, match="is compressed"):
        unpack(archive(("plan/plan.yaml", b"x"), (name, bytes(1000))), tmp_path / "other")
    with pytest.raises(PlanError, match="would write"):
        unpack(archive(("src/../plan.initial.safetensors", b"x")), tmp_path / "other")


def test_keys_and_links_in_the_code_folder_are_not_exported(workspace: Path) -> None:
    before = pack(workspace)
    os.utime(workspace / "src" / "model.py", (1, 1))
    assert pack(workspace) == before
    (workspace / "src" / "notes.txt").write_text("-----BEGIN PRIVATE KEY-----\n")
    with pytest.raises(PlanError, match=r"notes\.txt holds a private key; nothing was exported"):
        pack(workspace)
    (workspace / "src" / "link.py").symlink_to(workspace / "collaborator.yaml")
    with pytest.raises(PlanError, match=r"link\.py is not a plain file"):
        pack(workspace)


FORBIDDEN = [
    "/etc/passwd", "../plan/plan.yaml", "plan/../../x.yaml", "src/../cert/ca.crt", "src/..", "src/./x.py",
    "src//x.py", "C:/x.py", "src/C:x.py", "src\\x.py", "src/..\\x.py", "cert/ca.crt", "collaborator.yaml",
    "approvals/clinic-a.json",
    "plan/plan.py", "plan/deep/plan.yaml", "src/.hidden", ".git/config", "src/", "plan/", "x", "src/\x1b[2J.py",
    "src/" + "a" * 200,
]  # fmt: skip


@pytest.mark.parametrize("name", FORBIDDEN)
def test_an_archive_can_write_only_into_plan_and_code(tmp_path: Path, name: str) -> None:
    raw = archive(("plan/plan.yaml", b"a: 1"), (name, b"x"))
    with pytest.raises(PlanError, match=r"would write|not a sound archive"):
        unpack(raw, tmp_path / "w")
    assert not (tmp_path / "w").exists()


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("second", ["src/x.py", "src/X.py"])
def test_a_name_that_occurs_twice_is_refused(tmp_path: Path, second: str) -> None:
    with pytest.raises(PlanError, match="twice"):
        unpack(archive(("src/x.py", b"1"), (second, b"2")), tmp_path / "w")


def test_files_that_exist_or_are_links_are_left_alone(workspace: Path, tmp_path: Path) -> None:
    raw = pack(workspace)
    (workspace / "src" / "model.py").write_text("mine")
    (workspace / "plan" / "roster.yaml").unlink()
    with pytest.raises(PlanError, match=r"plan\.yaml, .*model\.py"):
        unpack(raw, workspace)
    assert (workspace / "src" / "model.py").read_text() == "mine"
    assert not (workspace / "plan" / "roster.yaml").exists()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "src").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PlanError, match="leads out of"):
        unpack(pack(workspace), tmp_path / "w")
    assert not list((tmp_path / "elsewhere").iterdir())


def directory_of(count: int) -> bytes:
    """Return an archive that is nothing but a directory of `count` names."""
    names = [b"src/%d.py" % number for number in range(count)]
    entries = b"".join(
        struct.pack("<4s4B4H3L5H2L", b"PK\x01\x02", 20, 3, 20, *(0,) * 8, len(name), *(0,) * 6) + name
        for name in names
    )
    return entries + struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, *(count & 0xFFFF,) * 2, len(entries), 0, 0)


@pytest.mark.parametrize("count", [MAX_FILES + 1, 1 << 16, 500_000])
def test_an_archive_of_many_names_is_refused_by_the_size_of_its_directory(tmp_path: Path, count: int) -> None:
    raw = directory_of(count)
    words = f"has {count} files" if count == MAX_FILES + 1 else "has a directory of"
    with pytest.raises(PlanError, match=f"{words}.* at most {MAX_FILES}"):
        unpack(raw, tmp_path / "w")
    assert not (tmp_path / "w").exists()


def test_links_and_bombs_in_an_archive_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="is a link or a device"):
        unpack(archive(("src/x.py", b"/etc/passwd"), mode=stat.S_IFLNK | 0o777), tmp_path / "w")
    block = bytes(MAX_TOTAL_BYTES // 2 + 1)
    with pytest.raises(PlanError, match="unpacks to more than"):
        unpack(archive(("src/a.py", block), ("src/b.py", block)), tmp_path / "w")
    many = archive(*((f"src/{index}.py", b"") for index in range(MAX_FILES + 1)))
    with pytest.raises(PlanError, match=f"has {MAX_FILES + 1} files"):
        unpack(many, tmp_path / "w")
    assert not (tmp_path / "w").exists()
    sound = archive(("plan/plan.yaml", b"a: 1"))
    for raw in (sound + b"comment", sound[:-2] + struct.pack("<H", 7) + b"comment"):
        with pytest.raises(PlanError, match="not a sound archive"):
            unpack(raw, tmp_path / "w")
    wide = sound[:-22] + struct.pack("<4sLQL", b"PK\x06\x07", 0, 0, 1) + sound[-22:]
    with pytest.raises(PlanError, match="not a sound archive"):
        unpack(wide, tmp_path / "w")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_compression_that_no_export_uses_is_refused_by_name(tmp_path: Path, method: int) -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as target:
        target.writestr("plan/plan.yaml", b"a: 1\n" * 100)
    with pytest.raises(PlanError, match=rf"plan/plan\.yaml' is compressed by method {method}"):
        unpack(stream.getvalue(), tmp_path / "w")


def test_every_damage_to_an_archive_is_one_clear_error_and_writes_nothing(workspace: Path, tmp_path: Path) -> None:
    draw = random.Random(1)  # noqa: S311 - damage, not a secret
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as target:
        for number, method in enumerate((zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA, zipfile.ZIP_DEFLATED)):
            target.writestr(f"src/{number}.py", b"x = 1\n" * 20, compress_type=method)
    refused = 0
    for sound in (pack(workspace), stream.getvalue()):
        for _ in range(1500):
            raw = bytearray(sound)
            for _ in range(draw.randint(1, 4)):
                raw[draw.randrange(len(raw))] = draw.randrange(256)
            try:
                unpack(bytes(raw), tmp_path / "w")
            except PlanError:
                refused += 1
                assert not (tmp_path / "w").exists()
            else:
                for path in sorted((tmp_path / "w").rglob("*"), reverse=True):
                    path.rmdir() if path.is_dir() else path.unlink()
                (tmp_path / "w").rmdir()
    assert refused > 1500


def tree(folder: Path) -> dict[str, bytes | None]:
    """Return everything in a folder, with what is in the files."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def _a_file_called_src(folder: Path) -> None:
    (folder / "src").write_text("mine")


def _a_file_called_deep(folder: Path) -> None:
    (folder / "src").mkdir()
    (folder / "src" / "deep").write_text("mine")


def _a_file_in_the_way(folder: Path) -> None:
    (folder / "src").mkdir()
    (folder / "src" / "z.py").write_text("mine")


def _nothing(_: Path) -> None:
    pass


@pytest.mark.parametrize(
    ("names", "before", "words"),
    [
        (("src/a", "src/a/b.py"), _nothing, "'src/a' is a file and a folder"),
        (("src/A", "src/a/b.py"), _nothing, "'src/A' is a file and a folder"),
        (("src/a/b.py", "src/a"), _nothing, "'src/a' is a file and a folder"),
        (("src/a.py", "src/deep/b.py"), _a_file_called_src, "src is a file"),
        (("src/a.py", "src/deep/b.py"), _a_file_called_deep, "deep is a file"),
        (("src/a.py", "src/z.py"), _a_file_in_the_way, r"z\.py"),
        (("src/a.py", "src/full.py"), _nothing, r"full\.py cannot be written: File too large"),
    ],
)
def test_an_archive_that_cannot_be_unpacked_whole_leaves_the_folder_as_it_was(
    tmp_path: Path, names: tuple[str, ...], before: Callable[[Path], None], words: str
) -> None:
    contents = [(name, bytes(5000) if "full" in name else b"x") for name in ("plan/plan.yaml", *names)]
    folder = tmp_path / "w"
    folder.mkdir()
    before(folder)
    found = tree(folder)
    with pytest.raises(PlanError, match=words), full_beyond(4096):
        unpack(archive(*contents), folder)
    assert tree(folder) == found
    if before is _nothing:
        with pytest.raises(PlanError, match=words), full_beyond(4096):
            unpack(archive(*contents), tmp_path / "new" / "w")
        assert not (tmp_path / "new").exists()


def test_what_is_no_workspace_or_archive_is_named(tmp_path: Path, workspace: Path) -> None:
    with pytest.raises(PlanError, match=r"it has no plan/plan\.yaml"):
        pack(tmp_path)
    sound = pack(workspace)
    middle = len(sound) // 2
    for raw in (b"", b"not a zip", sound[:middle], sound[:60] + bytes(20) + sound[80:]):
        with pytest.raises(PlanError, match="not a sound archive"):
            unpack(raw, tmp_path / "w")
    with pytest.raises(PlanError, match="cannot be read"):
        read_archive(tmp_path / "none.zip")
    (tmp_path / "big.zip").touch()
    os.truncate(tmp_path / "big.zip", MAX_TOTAL_BYTES + MAX_MODEL_BYTES + 1)
    with pytest.raises(PlanError, match="has more than"):
        read_archive(tmp_path / "big.zip")
    (tmp_path / "w").write_text("mine")
    with pytest.raises(PlanError, match="w is a file"):
        unpack(archive(("plan/plan.yaml", b"x")), tmp_path / "w")
    assert (tmp_path / "w").read_text() == "mine"
    before = {*tmp_path.iterdir()}
    for folder in (tmp_path, tmp_path / "w"):
        with pytest.raises(PlanError, match="nothing was written"):
            create_workspace(folder, "heart", "csv")
    assert {*tmp_path.iterdir()} == before
    write_site_file(tmp_path, "clinic-b")
    with pytest.raises(PlanError, match="it was left alone"):
        write_site_file(tmp_path, "clinic-c")
    assert "clinic-b" in (tmp_path / "collaborator.yaml").read_text()
