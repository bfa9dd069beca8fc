"""A PostgreSQL server of the tests' own: a new folder, a free port, fast and forgetful.

The server refuses to run as root, so that tests which do run as another user, if this machine has one for it.
"""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PASSWORD = "c0rrect/h@rse:b%ttery"  # noqa: S105 - of a server that lives for some seconds
OWNER = "owner"
USERS = ("postgres", "nobody")


class NotHereError(Exception):
    """This machine cannot run the server; the text is the reason."""


@dataclass(frozen=True)
class Postgres:
    """A running server.

    Attributes:
        port: on 127.0.0.1.
        sockets: the folder of its Unix socket.
        password_file: holds the password of `OWNER`.
    """

    port: int
    sockets: Path
    password_file: Path

    @property
    def url(self) -> str:
        """Its address, without the password."""
        return f"postgresql://{OWNER}@127.0.0.1:{self.port}/postgres"

    def execute(self, *statements: str) -> None:
        """Execute statements, each in a transaction of its own."""
        import psycopg

        with psycopg.connect(
            host="127.0.0.1", port=self.port, user=OWNER, password=PASSWORD, dbname="postgres", autocommit=True
        ) as connection:
            for statement in statements:
                connection.execute(statement.encode())


@contextmanager
def running_postgres() -> Iterator[Postgres]:
    """Start a server, and end it with everything that it has written.

    Raises:
        NotHereError: programs, or a user to run them as, are missing.
    """
    initdb, postgres = _program("initdb"), _program("postgres")
    user = _user()
    folder = Path(tempfile.mkdtemp(prefix="fedfair-pg-"))
    try:
        password_file = folder / "password"
        password_file.write_text(f"{PASSWORD}\n")
        data = folder / "data"
        if user is not None:
            for path in (folder, password_file):
                os.chown(path, user.pw_uid, user.pw_gid)
        folder.chmod(0o755)
        identity: dict[str, Any] = (
            {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": ()}
        )
        made = subprocess.run(
            [initdb, "-D", str(data), "-U", OWNER, "-A", "scram-sha-256", "--pwfile", str(password_file),
             "--no-sync", "-E", "UTF8", "--locale", "C"],
            capture_output=True, text=True, check=False, cwd=folder, **identity,
        )  # fmt: skip
        if made.returncode != 0:
            raise NotHereError(f"initdb failed: {made.stderr.strip().splitlines()[-1]}")
        password_file.chmod(0o600)
        with _serving(postgres, folder, data, identity) as port:
            yield Postgres(port, folder, password_file)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _serving(postgres: str, folder: Path, data: Path, identity: dict[str, Any]) -> Iterator[int]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    command = [
        postgres, "-D", str(data), "-p", str(port), "-k", str(folder), "-c", "listen_addresses=127.0.0.1",
        "-c", "fsync=off", "-c", "full_page_writes=off", "-c", "synchronous_commit=off",
    ]  # fmt: skip
    server: subprocess.Popen[str]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True, **identity) as server:
        try:
            lines = iter(server.stderr or ())
            if not any("ready to accept connections" in line for line in lines):
                raise NotHereError(f"postgres ended with status {server.wait()} before it was ready")
            # Whatever it says later is read, so that it never waits for a reader.
            reader = threading.Thread(target=lambda: all(lines), daemon=True)
            reader.start()
            yield port
            server.send_signal(signal.SIGINT)  # its fast shutdown, which ends connections
            reader.join()
        finally:
            server.send_signal(signal.SIGINT)
            server.wait()


def _program(name: str) -> str:
    places = [str(path.parent) for path in sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))]
    found = shutil.which(name, path=os.pathsep.join((os.environ.get("PATH", ""), *places)))
    if found is None:
        raise NotHereError(f"the program {name} of PostgreSQL is not installed (Debian: postgresql)")
    return found


def _user() -> pwd.struct_passwd | None:
    """Return who runs the server; None for this user."""
    if os.geteuid() != 0:
        return None
    for name in USERS:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise NotHereError(f"this is root, and there is no user {' or '.join(USERS)} to run PostgreSQL as")
