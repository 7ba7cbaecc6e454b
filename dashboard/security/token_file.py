"""The file of the login token: one random line that only the owner can read."""

import os
import secrets
import stat
from pathlib import Path

_MIN_LENGTH = 32


class TokenError(RuntimeError):
    """The token file is not safe to use."""

    def __init__(self, path: Path, problem: str) -> None:
        way_out = "delete it to create a new one, or turn the login off: ELASTICQA_DASHBOARD_AUTH=off"
        super().__init__(f"{path}: {problem}; {way_out}")


def load_token(path: Path) -> str:
    """Return the token in the file; create the file if it is missing.

    Raises:
        TokenError: other users could have read or written the file, or it has no valid token.
    """
    if not os.path.lexists(path):
        _create(path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise TokenError(path, f"cannot be read ({error.strerror})") from error
    try:
        _check(path, os.fstat(descriptor))
        token = os.read(descriptor, 1024).decode("ascii", "replace").strip()
    finally:
        os.close(descriptor)
    if len(token) < _MIN_LENGTH or not token.isascii() or not token.isprintable():
        raise TokenError(path, f"has no token of at least {_MIN_LENGTH} plain characters")
    return token


def _create(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "w", encoding="ascii") as file:  # noqa: PTH123 - a descriptor, no path
            file.write(secrets.token_urlsafe(32) + "\n")
            file.flush()
            os.fsync(descriptor)
        # Create it with a hard link, which is atomic and never replaces a file: of several servers that start together,
        # the first one's token is used.
        path.hardlink_to(draft)
    except FileExistsError:
        return
    finally:
        draft.unlink()


def _check(path: Path, facts: os.stat_result) -> None:
    if not stat.S_ISREG(facts.st_mode):
        raise TokenError(path, "is not a regular file")
    if facts.st_uid != os.geteuid():
        raise TokenError(path, f"belongs to user id {facts.st_uid}, not to {os.geteuid()}, who runs the dashboard")
    mode = stat.S_IMODE(facts.st_mode)
    if mode & 0o077:
        raise TokenError(path, f"has mode {mode:04o}, so other users may know the token")
