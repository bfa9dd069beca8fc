"""A workspace as one file: what all must have, and nothing that is anybody's own.

Decides what travels: the YAML files of `plan/` with their models before round 1 (or the state that a run continues
from), and the files of `src/`. Keys, data, trained models, approvals and `collaborator.yaml` never do. The same
rule holds on the way in: no archive, however made, can write anything but new files under `plan/` and `src/`, and
it writes all of them or none.

An archive that sites join with (`fedfair join`) has certificates under `join/` too. No import writes or trusts
these: what joins compares their fingerprint with the authority's operator first (`collaborator.joining`).

Archives are reproducible (sorted, without times), so that two people can compare one digest.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import shutil
import stat
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from types import MappingProxyType

from fedfair.errors import PlanError
from fedfair.plan.module_code import travels
from fedfair.plan.parameters import FROZEN_SUFFIX
from fedfair.run.initial_model import STATE_SUFFIX
from fedfair.run.initial_model import SUFFIX as MODEL_SUFFIX
from fedfair.run.reference_file import SUFFIX as REFERENCES_SUFFIX

MAX_FILES = 1000
MAX_TOTAL_BYTES = 32 << 20
"""Of all files but models."""
MAX_MODEL_BYTES = 1 << 30
"""Of the models before round 1 and of frozen parameters. They are stored as they are, so none unpacks to more than
the archive has."""
MAX_DIRECTORY_BYTES = MAX_FILES << 10
"""Of the archive's list of names. A name has at most 200 characters, so an export stays below it."""

_MODEL_ENDINGS = (MODEL_SUFFIX, STATE_SUFFIX, FROZEN_SUFFIX, REFERENCES_SUFFIX)
_DIRECTORY_END_MARK = b"PK\x05\x06"
_DIRECTORY_END = struct.Struct("<4s4H2LH")
_WIDE_LOCATOR = b"PK\x06\x07"
_WIDE_LOCATOR_BYTES = 20
JOIN_FOLDER = "join"
"""The part of an archive that holds certificates, which `unpack` never writes."""

_EPOCH = (1980, 1, 1, 0, 0, 0)
_SECRET = b"PRIVATE KEY-----"
_ENCRYPTED = 1
_METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}


def pack(workspace: Path, certificates: Mapping[str, bytes] = MappingProxyType({})) -> bytes:
    """Return the archive of a workspace.

    Args:
        workspace: its folder.
        certificates: files for those who join, by name, such as "clinic-a.certificate.pem".

    Raises:
        PlanError: there is no plan, or a file is a link, too large, or holds a private key.
    """
    if not (workspace / "plan" / "plan.yaml").is_file():
        raise PlanError(f"{workspace} is no workspace: it has no plan/plan.yaml", "go to the workspace's folder")
    contents = {name: _readable(workspace / name) for name in sorted(exported(workspace))}
    for name, content in sorted(certificates.items()):
        if _SECRET in content:
            raise PlanError(f"{name} holds a private key; nothing was exported", "give certificates only")
        contents[f"{JOIN_FOLDER}/{name}"] = content
    if _beyond_limits({name: len(content) for name, content in contents.items()}):
        raise PlanError(
            f"{workspace}/src holds more than {MAX_FILES} files or {MAX_TOTAL_BYTES} bytes; nothing was exported",
            "keep data and models out of src/",
        )
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            info = zipfile.ZipInfo(name, _EPOCH)
            info.compress_type = zipfile.ZIP_STORED if _is_model(name) else zipfile.ZIP_DEFLATED
            info.external_attr = (stat.S_IFREG | 0o644) << 16
            archive.writestr(info, content)
    return stream.getvalue()


def read_archive(path: Path) -> bytes:
    """Return the bytes of an archive.

    Raises:
        PlanError: the file cannot be read, or is larger than any archive of a workspace.
    """
    most = MAX_TOTAL_BYTES + MAX_MODEL_BYTES
    try:
        with path.open("rb") as source:
            # Nothing of a file that is too large is read; one that grows meanwhile is not read further.
            raw = b"" if (size := path.stat().st_size) > most else source.read(most)
    except OSError as error:
        remedy = "name an archive that `fedfair invite` or `fedfair workspace export` has written"
        raise PlanError(f"{path} cannot be read: {error.strerror}", remedy) from error
    if size > most:
        raise PlanError(f"{path} has more than {most} bytes", "it is not a workspace")
    return raw


def unpack(raw: bytes, folder: Path) -> list[Path]:
    """Write the files of an archive into a folder, after everything about all of them was checked.

    The files are first written beside the workspace's own, in a temporary folder, and then moved. So a full disk
    leaves nothing behind.

    Args:
        raw: the archive; at most 1000 files.
        folder: the workspace; created if it does not exist.

    Returns:
        The files that were written.

    Raises:
        PlanError: the archive is damaged or holds anything that `pack` would not have put there, a file exists, or
            a file cannot be written. Nothing was written then.
    """
    contents = {name: content for name, content in read_contents(raw).items() if not _is_of_join(name)}
    targets = {folder.joinpath(*PurePosixPath(name).parts): content for name, content in contents.items()}
    _check_targets(list(targets), folder)
    _write_all(targets, folder)
    return list(targets)


def certificates_of(raw: bytes) -> dict[str, bytes]:
    """Return the files of an archive for those who join, by name; nothing of them is checked.

    Raises:
        PlanError: as for `unpack`.
    """
    found = read_contents(raw).items()
    return {PurePosixPath(name).name: content for name, content in found if _is_of_join(name)}


def _is_of_join(name: str) -> bool:
    return PurePosixPath(name).parts[0] == JOIN_FOLDER


def exported(workspace: Path) -> Iterator[str]:
    """Yield the files of a workspace that travel, by their path in it with forward slashes."""
    plans = [(workspace / "plan").glob(f"*{ending}") for ending in (".yaml", *_MODEL_ENDINGS)]
    for path in (*itertools.chain(*plans), *(workspace / "src").rglob("*")):
        name = path.relative_to(workspace)
        if travels(name) and not path.is_dir():
            yield name.as_posix()


def _is_model(name: str) -> bool:
    return name.startswith("plan/") and name.endswith(_MODEL_ENDINGS)


def _beyond_limits(sizes: Mapping[str, int]) -> bool:
    models = sum(size for name, size in sizes.items() if _is_model(name))
    return models > MAX_MODEL_BYTES or sum(sizes.values()) - models > MAX_TOTAL_BYTES or len(sizes) > MAX_FILES


def _readable(path: Path) -> bytes:
    # A link in src/ could lead to data or keys, which must not travel.
    if path.is_symlink() or not path.is_file():
        raise PlanError(f"{path} is not a plain file; nothing was exported", "replace it by a file, or remove it")
    content = path.read_bytes()
    if _SECRET in content:
        raise PlanError(f"{path} holds a private key; nothing was exported", "move the key to cert/")
    return content


def read_contents(raw: bytes) -> dict[str, bytes]:
    """Return every file of an archive by its name, after all names were checked.

    Raises:
        PlanError: the archive is damaged, or holds anything that `pack` would not have put there.
    """
    _check_directory(raw)
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            members = archive.infolist()
            _check_members(members)
            contents = _bounded(archive, members)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise _unsound(str(error)) from error
    return contents


def _unsound(reason: str) -> PlanError:
    return PlanError(f"this is not a sound archive: {reason}", "ask for it again, and compare the digest")


def _check_directory(raw: bytes) -> None:
    """Bound the list of names before it is read, because every name in it costs memory and time.

    What ends an export is the plain record of 22 bytes, without a comment and without the wide form for large
    archives. Anything else could hold a second list, and the reader might take that one.
    """
    end = len(raw) - _DIRECTORY_END.size
    if end < 0 or raw[end : end + 4] != _DIRECTORY_END_MARK:
        raise _unsound("it does not end as a zip file without a comment does")
    _, _, _, _, _, size, _, comment = _DIRECTORY_END.unpack_from(raw, end)
    wide = raw[max(end - _WIDE_LOCATOR_BYTES, 0) :].startswith(_WIDE_LOCATOR)
    if comment or wide:
        raise _unsound("it has a comment or a second directory")
    if size > MAX_DIRECTORY_BYTES:
        raise PlanError(
            f"the archive has a directory of {size} bytes, an archive has at most {MAX_FILES} files",
            "it is not a workspace",
        )


def _check_members(members: list[zipfile.ZipInfo]) -> None:
    if len(members) > MAX_FILES:
        raise PlanError(f"the archive has {len(members)} files, at most {MAX_FILES}", "it is not a workspace")
    seen: set[str] = set()
    for member in members:
        _check_name(member.filename)
        kind = stat.S_IFMT(member.external_attr >> 16)
        if kind not in {0, stat.S_IFREG}:
            raise PlanError(f"the archive's {member.filename!r} is a link or a device", "it is not a workspace")
        # Names that differ in case only are one file on some systems.
        if member.filename.casefold() in seen:
            raise PlanError(f"the archive has {member.filename!r} twice", "it is not a workspace")
        if member.compress_type not in _METHODS or member.flag_bits & _ENCRYPTED:
            how = "encrypted" if member.flag_bits & _ENCRYPTED else f"compressed by method {member.compress_type}"
            raise PlanError(
                f"the archive's {member.filename!r} is {how}", "export it with `fedfair workspace export`"
            )
        if _is_model(member.filename) and member.compress_type != zipfile.ZIP_STORED:
            raise PlanError(
                f"the archive's {member.filename!r} is compressed", "export it with `fedfair workspace export`"
            )
        seen.add(member.filename.casefold())
    for member in members:
        for parent in PurePosixPath(member.filename.casefold()).parents:
            if str(parent) in seen:
                folder = next(each.filename for each in members if each.filename.casefold() == str(parent))
                raise PlanError(f"the archive's {folder!r} is a file and a folder", "it is not a workspace")


def _check_name(name: str) -> None:
    parts = name.split("/")
    plain = all(
        part and part.isprintable() and part[0] not in ". " and not set(part) & set('\\:*?"<>|') for part in parts
    )
    in_plan = len(parts) == 2 and parts[0] == "plan" and name.endswith((".yaml", *_MODEL_ENDINGS))
    in_source = len(parts) >= 2 and parts[0] == "src"
    in_join = len(parts) == 2 and parts[0] == JOIN_FOLDER and name.endswith(".pem")
    if not plain or not (in_plan or in_source or in_join) or len(name) > 200:
        raise PlanError(
            f"the archive would write {name[:80]!r}",
            "an archive may hold only plan/*.yaml, their models before round 1, join/*.pem and files under src/",
        )


def _bounded(archive: zipfile.ZipFile, members: list[zipfile.ZipInfo]) -> dict[str, bytes]:
    contents: dict[str, bytes] = {}
    left = {True: MAX_MODEL_BYTES, False: MAX_TOTAL_BYTES}
    for member in members:
        kind = _is_model(member.filename)
        # The declared size is the sender's word; what is read is bounded whatever it says.
        with archive.open(member) as source:
            contents[member.filename] = source.read(left[kind] + 1)
        left[kind] -= len(contents[member.filename])
        if left[kind] < 0:
            most = MAX_MODEL_BYTES if kind else MAX_TOTAL_BYTES
            raise PlanError(f"the archive unpacks to more than {most} bytes", "it is not a workspace")
    return contents


def _check_targets(targets: list[Path], folder: Path) -> None:
    present = [str(path) for path in targets if path.exists() or path.is_symlink()]
    if present:
        raise PlanError(f"nothing was written, because these exist: {', '.join(present)}", "move them away first")
    for path in targets:
        for parent in path.parents:
            if parent.exists() and not parent.is_dir():
                raise PlanError(f"{parent} is a file; nothing was written", "move it away, or name another folder")
        if not path.parent.resolve().is_relative_to(folder.resolve()):
            raise PlanError(f"{path.parent} leads out of {folder}; nothing was written", "remove that link")


def _write_all(targets: Mapping[Path, bytes], folder: Path) -> None:
    """Write all files or none; after a fault everything that was made is removed again."""
    place = folder
    with contextlib.ExitStack() as undo:
        try:
            _make_folder(folder, undo)
            beside = Path(tempfile.mkdtemp(prefix=".import-", dir=folder))
            undo.callback(shutil.rmtree, beside, ignore_errors=True)
            for number, place in enumerate(targets):
                (beside / str(number)).write_bytes(targets[place])
            for number, place in enumerate(targets):
                _make_folder(place.parent, undo)
                # Claims the name: what somebody else has made meanwhile is never replaced.
                place.touch(exist_ok=False)
                undo.callback(place.unlink, missing_ok=True)
                (beside / str(number)).replace(place)
            shutil.rmtree(beside)
        except OSError as error:
            raise PlanError(
                f"{place} cannot be written: {error.strerror}; nothing was written",
                "make room on the disk, or let this user write there",
            ) from error
        undo.pop_all()


def _make_folder(folder: Path, undo: contextlib.ExitStack) -> None:
    for path in reversed((folder, *folder.parents)):
        if not path.exists():
            path.mkdir()
            undo.callback(path.rmdir)
