"""Ray, as every command here uses it: connected or started, silent, and gone without a trace at the end.

Decides the address, what a worker gets of the processors and GPUs, and what becomes of Ray's own words and files.
Needs the extra `ray`, which is imported when a session begins. Ray that a program has started itself is used as it
is and left running.
"""

from __future__ import annotations

import math
import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedfair.errors import MissingExtraError, PlanError, UnreachableError
from fedfair.extras import missing_extra
from fedfair.processors import usable_processors

LONGEST_FOLDER = 40
"""Ray's sockets are below its folder, and no path of a socket may have more than 107 characters."""

MAX_PORT = 65535

STARTS = 3
"""How often Ray is started here before its fault counts."""

QUIET = {
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
"""Ray reads these when it is imported: it tells a terminal of dead workers, on the stream of results."""

REACHING_SECONDS = 10.0
"""So long may a cluster take to accept a connection; Ray itself tries for minutes, and does not say so."""


@contextmanager
def ray_session(address: str | None, code: Path | None = None) -> Iterator[Any]:
    """Yield the module `ray`, connected.

    Args:
        address: of a cluster: auto, HOST:PORT or ray://HOST:PORT. None takes `RAY_ADDRESS`; without it, Ray starts
            on this machine with its processors.
        code: a folder that every worker starts in, wherever it is; None for none.

    Raises:
        MissingExtraError: Ray is not installed.
        UnreachableError: no cluster answers there.
    """
    ray = _imported()
    if ray.is_initialized():
        yield ray
        return
    address = address or os.environ.get("RAY_ADDRESS")
    if address:
        _check_answers(address)
    folder = None if address else _own_folder()
    try:
        _connect(ray, address, folder, code)
        yield ray
    finally:
        ray.shutdown()
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def processors(ray: Any, asked: int | None) -> int:  # noqa: ANN401 - a module
    """Return how many workers a cluster bears, one for each processor; say on the terminal what is waited for.

    Args:
        ray: connected.
        asked: how many a user wants; None for as many as are free.

    Raises:
        PlanError: there are fewer processors than workers were asked for.
    """
    there = int(ray.cluster_resources().get("CPU", 0))
    if asked is not None and asked > there:
        raise PlanError(f"the Ray cluster has {there} processors, fewer than --workers {asked}", "lower it")
    free = int(ray.available_resources().get("CPU", 0))
    workers = asked or max(1, free)
    if workers > free:
        sys.stderr.write(
            f"the Ray cluster has {there} processors, and {free} of them are free: waiting for {workers - free} "
            "more; see `ray status`, or press Ctrl-C\n"
        )
    return workers


def gpu_share(ray: Any, workers: int) -> float:  # noqa: ANN401 - a module
    """Return the share of a GPU for each worker, such that all workers fit: Ray places a share on one GPU."""
    gpus = int(ray.cluster_resources().get("GPU", 0))
    return 1 / math.ceil(workers / gpus) if gpus and workers else 0.0


def _imported() -> Any:  # noqa: ANN401 - a module
    if "ray" not in sys.modules:
        for name, value in QUIET.items():
            os.environ.setdefault(name, value)
    try:
        import ray
    except ModuleNotFoundError as fault:
        raise MissingExtraError(missing_extra(fault) or str(fault)) from fault
    return ray


def _check_answers(address: str) -> None:
    """Refuse an address where nothing accepts a connection.

    Args:
        address: as for `ray_session`; what has no port is left to Ray.

    Raises:
        UnreachableError: nothing does.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not (host and port.isdecimal() and int(port) <= MAX_PORT):
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), REACHING_SECONDS).close()
    except OSError as fault:
        raise UnreachableError(
            f"no Ray cluster answers at {address}: {fault.strerror or fault}",
            "see `ray status` there; without --address and RAY_ADDRESS Ray starts on this machine",
        ) from fault


def _own_folder() -> Path:
    """Return a new folder for Ray's sockets and logs; nobody reads them after the end."""
    place = tempfile.gettempdir()
    return Path(tempfile.mkdtemp(prefix="fedfair-ray-", dir=place if len(place) <= LONGEST_FOLDER else "/tmp"))  # noqa: S108 - mkdtemp makes a folder that is nobody else's


def _connect(ray: Any, address: str | None, folder: Path | None, code: Path | None) -> None:  # noqa: ANN401 - a module
    started: dict[str, Any] = {"log_to_driver": False, "logging_level": "critical"}
    if code is not None:
        started["runtime_env"] = {"working_dir": str(code)}
    if address is None:
        if not any(name.startswith("RAY_AUTH_") for name in os.environ):
            # Ray asks every client for a token, and would keep one in the user's home. One for a process suffices.
            os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
        started |= {"include_dashboard": False, "num_cpus": usable_processors(), "_temp_dir": str(folder)}
    with _handlers_kept(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            _begun(ray, address, started)
        except Exception as fault:  # Ray raises anything, a bare Exception among it
            words = (str(fault).strip() or type(fault).__name__).splitlines()[0]
            where = "does not start on this machine" if address is None else f"has no cluster at {address}"
            raise UnreachableError(
                f"Ray {where}: {words}", "see `ray status`; without --address Ray starts on this machine"
            ) from fault


def _begun(ray: Any, address: str | None, started: dict[str, Any]) -> None:  # noqa: ANN401 - a module
    """Begin; on this machine again where it failed, because Ray gives a busy machine no more than 30 seconds."""
    last = STARTS if address is None else 1
    for attempt in range(1, last + 1):
        try:
            ray.init(address=address or "local", **started)
        except Exception:
            ray.shutdown()
            if attempt == last:
                raise
        else:
            return


@contextmanager
def _handlers_kept() -> Iterator[None]:
    """Give signals back to who had them: Ray takes SIGTERM for itself."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
