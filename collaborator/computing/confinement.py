"""What a computing process gives up before it runs anything of a plan: files, network, signals and privileges.

It uses what Linux offers to every user: Landlock for files, seccomp for calls of the system, no new privileges.
Where the system has one of them not, a sentence says which protection is missing; nothing is ever assumed. What a
process has given up it cannot have back, nor can what it starts. Called before numpy or torch is loaded, since a
thread that runs already keeps what it may do.

Sources: Linux, Documentation/userspace-api/landlock.rst and seccomp_filter.rst; include/uapi/linux/landlock.h.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import struct
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

NO_FILES = (
    "this system has no Landlock (Linux 5.13 or later): own code can read and change every file that this user can"
)
NO_CALLS = (
    "this system has no seccomp: own code can open connections, send signals and look into other processes of "
    "this user"
)
NETWORK = "the records come from a database, so own code can open connections too"
NO_PRIVILEGES = "own code could gain privileges by starting programs that have them"


@dataclass(frozen=True, slots=True)
class Allowed:
    """What a computing process may still do.

    Attributes:
        reads: files and folders, with all that is in them.
        writes: the folders that it writes to.
        hidden: files and folders that it may not read, wherever they are.
        network: whether it may open connections.
    """

    reads: tuple[Path, ...]
    writes: tuple[Path, ...]
    hidden: tuple[Path, ...] = ()
    network: bool = False


def confine(allowed: Allowed) -> tuple[str, ...]:
    """Give up everything but what is allowed, for this process and all that it starts.

    Returns:
        A sentence for each protection that this system does not offer.
    """
    if sys.platform != "linux":
        return (NO_FILES, NO_CALLS, NO_PRIVILEGES)
    missing = [] if _no_new_privileges() else [NO_PRIVILEGES]
    _no_core()
    if not _restrict_files(allowed):
        missing.append(NO_FILES)
    if not _restrict_calls(network=allowed.network):
        missing.append(NO_CALLS)
    elif allowed.network:
        missing.append(NETWORK)
    return tuple(missing)


# ------------------------------------------------------------------------------------------------- privileges

_PR_SET_PDEATHSIG, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 1, 24, 38
_KEPT_CAPABILITIES = frozenset({1, 2})
"""Those by which root reads files of others (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH): Landlock bounds these."""

_CAPABILITY_VERSION = 0x20080522
_SYS_CAPSET = {"x86_64": 126, "aarch64": 91}


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def end_with_parent(signal_number: int) -> None:
    """Have the system send this process a signal when the one that started it ends; nothing where it cannot."""
    if sys.platform == "linux":
        _libc().prctl(_PR_SET_PDEATHSIG, signal_number, 0, 0, 0)


def _no_new_privileges() -> bool:
    libc = _libc()
    for capability in range(64):
        if capability not in _KEPT_CAPABILITIES:
            libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    number = _SYS_CAPSET.get(platform.machine())
    if number is not None and os.geteuid() == 0:
        kept = sum(1 << capability for capability in _KEPT_CAPABILITIES)
        header = ctypes.create_string_buffer(struct.pack("<Ii", _CAPABILITY_VERSION, 0))
        data = ctypes.create_string_buffer(struct.pack("<6I", kept, kept, 0, 0, 0, 0))
        libc.syscall(number, header, data)
    return int(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) == 0


def _no_core() -> None:
    import resource

    # A core of this process would hold records.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


# ------------------------------------------------------------------------------------------------------ files

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
"""The same numbers on every machine."""

_READ = 1 << 0 | 1 << 2 | 1 << 3  # execute, read_file, read_dir
_WRITE_FILE, _TRUNCATE, _IOCTL = 1 << 1, 1 << 14, 1 << 15
_ALL_BY_ABI = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
_OF_FILES = 1 << 0 | 1 << 1 | 1 << 2 | _TRUNCATE | _IOCTL
_SCOPED = 1 << 0 | 1 << 1  # abstract sockets and signals, of processes outside
_ABI_OF_SCOPES = 6

SYSTEM_READS = (
    "/usr", "/lib", "/lib64", "/bin", "/sbin", "/opt", "/nix/store", "/sys",
    "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime", "/etc/timezone", "/etc/passwd",
    "/etc/group", "/etc/nsswitch.conf", "/etc/hosts", "/etc/resolv.conf", "/etc/host.conf", "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf", "/etc/pki/tls", "/etc/alternatives", "/etc/mime.types", "/etc/gai.conf",
    "/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/version", "/proc/filesystems",
    "/proc/driver", "/proc/devices", "/proc/modules", "/proc/sys",
)  # fmt: skip
"""What programs of a system read, none of which is a site's."""

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/kfd", "/dev/dri")


def readable(stated: Iterable[Path], hidden: Iterable[Path]) -> Iterator[Path]:
    """Yield files and folders that may be opened as a whole, since nothing hidden is in them.

    A folder with something hidden in it is divided: what lies beside that may be read, as it is now. What is
    stated may itself be in a hidden folder, such as the plan of one study among those of others.

    Args:
        stated: files and folders that may be read.
        hidden: files and folders that may not.
    """
    closed = {path.resolve() for path in hidden}
    pending = [path.resolve() for path in stated]
    while pending:
        path = pending.pop()
        if path in closed:
            continue
        if not any(one.is_relative_to(path) for one in closed):
            yield path
        elif path.is_dir() and path != Path(path.anchor):
            pending += (child for child in path.iterdir() if not child.is_symlink())


def _system(hidden: Sequence[Path]) -> Iterator[Path]:
    """Yield where system, interpreter and packages are; no folder that has something hidden in it."""
    closed = [path.resolve() for path in hidden]
    package = Path(__file__).resolve().parents[1]
    yield from (package, package.parent / "fedfair")
    prefixes = (sys.prefix, sys.base_prefix, sys.exec_prefix)
    for path in (Path(entry).resolve() for entry in (*SYSTEM_READS, *prefixes, *sys.path) if entry):
        if path != Path(path.anchor) and not any(one.is_relative_to(path) for one in closed):
            yield path


def _restrict_files(allowed: Allowed) -> bool:
    libc = _libc()
    abi = int(libc.syscall(_CREATE_RULESET, None, 0, 1))
    if abi < 1:
        return False
    handled, scoped = _ALL_BY_ABI[min(abi, max(_ALL_BY_ABI))], _SCOPED if abi >= _ABI_OF_SCOPES else 0
    attributes = struct.pack("<QQQ", handled, 0, scoped)
    attributes = attributes[: 24 if scoped else 8]
    ruleset = int(libc.syscall(_CREATE_RULESET, attributes, len(attributes), 0))
    if ruleset < 0:
        return False
    try:
        nvidia = Path("/dev").glob("nvidia*")
        for path in (*_system(allowed.hidden), *readable(allowed.reads, allowed.hidden)):
            _allow(libc, ruleset, path, _READ & handled)
        for device in (*map(Path, DEVICES), *nvidia):
            _allow(libc, ruleset, device, (_READ | _WRITE_FILE | _IOCTL) & handled)
        for folder in allowed.writes:
            _allow(libc, ruleset, folder, handled)
        return int(libc.syscall(_RESTRICT_SELF, ruleset, 0)) == 0
    finally:
        os.close(ruleset)


def _allow(libc: ctypes.CDLL, ruleset: int, path: Path, access: int) -> None:
    try:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not path.is_dir():
            access &= _OF_FILES
        rule = struct.pack("<Qi", access, opened)
        libc.syscall(_ADD_RULE, ruleset, 1, rule, 0)
    finally:
        os.close(opened)


# ------------------------------------------------------------------------------------------------------ calls

_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_SYS_SECCOMP = {"x86_64": 317, "aarch64": 277}

_REFUSED: dict[str, tuple[int, ...]] = {
    # ptrace, process_vm_readv, process_vm_writev, pidfd_getfd, pidfd_send_signal, io_uring_setup, bpf,
    # perf_event_open, mount, umount2, setns, open_by_handle_at, pivot_root, chroot, tkill, rt_sigqueueinfo,
    # rt_tgsigqueueinfo, add_key, request_key, keyctl, kexec_load, init_module, finit_module
    "x86_64": (101, 310, 311, 438, 424, 425, 321, 298, 165, 166, 308, 304, 155, 161, 200, 129, 297, 248, 249, 250,
               246, 175, 313),
    "aarch64": (117, 270, 271, 438, 424, 425, 280, 241, 40, 39, 268, 265, 41, 51, 130, 138, 240, 217, 218, 219,
                104, 105, 273),
}  # fmt: skip
_SOCKET = {"x86_64": 41, "aarch64": 198}
_OWN_PROCESS: dict[str, tuple[int, ...]] = {"x86_64": (62, 234, 302), "aarch64": (129, 131, 261)}
"""kill, tgkill, prlimit64: to this process alone."""

_X32 = 0x40000000
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_PERMIT, _REFUSE = 0x7FFF0000, 0x00050000 | 1  # EPERM
_SET_FILTER, _ALL_THREADS = 1, 1

_Step = tuple[int, int, int, int]


def _restrict_calls(*, network: bool) -> bool:
    machine = platform.machine()
    if machine not in _ARCHITECTURES or sys.maxsize < 1 << 32:
        return False
    refused = (*_REFUSED[machine], *(() if network else (_SOCKET[machine],)))
    steps = _program(_ARCHITECTURES[machine], refused, _OWN_PROCESS[machine], os.getpid())
    packed = b"".join(struct.pack("<HBBI", *step) for step in steps)
    held = ctypes.create_string_buffer(packed, len(packed))
    program = struct.pack("<HxxxxxxQ", len(steps), ctypes.addressof(held))
    return int(_libc().syscall(_SYS_SECCOMP[machine], _SET_FILTER, _ALL_THREADS, program)) == 0


def _program(architecture: int, refused: Sequence[int], own: Sequence[int], process: int) -> list[_Step]:
    """Return a program of the kernel's packet filter: each step is an operation, two jumps and a number."""
    refusing, permitting = (_RETURN, 0, 0, _REFUSE), (_RETURN, 0, 0, _PERMIT)
    steps = [(_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 1, 0, architecture), refusing, (_LOAD, 0, 0, _NUMBER)]
    steps += [(_AT_LEAST, 0, 1, _X32), refusing]
    for number in refused:
        steps += [(_EQUAL, 0, 1, number), refusing]
    for number in own:
        # A process number of 0 means this process to prlimit64, and its own group of processes to kill.
        steps += [(_EQUAL, 0, 5, number), (_LOAD, 0, 0, _FIRST_ARGUMENT)]
        steps += [(_EQUAL, 2, 0, process), (_EQUAL, 1, 0, 0), refusing, permitting]
    return [*steps, permitting]
