"""Paths of the record: home directory, runs directory, and a database file on a file system with locks."""

import hashlib
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

import platformdirs

RUN_ID_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
MOUNTS = Path("/proc/self/mountinfo")

# SQLite's locks are not safe on these: https://sqlite.org/faq.html#q5
SHARED_FILE_SYSTEMS = frozenset(
    {
        "9p", "afs", "beegfs", "ceph", "cifs", "fuse.ceph", "fuse.glusterfs", "fuse.juicefs", "fuse.sshfs",
        "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "orangefs", "panfs", "pvfs2", "smb3", "smbfs", "virtiofs",
        "wekafs",
    }
)  # fmt: skip


def home_of(environ: Mapping[str, str]) -> Path:
    """Return `ELASTICQA_HOME`, or the user's data directory; creates nothing."""
    value = environ.get("ELASTICQA_HOME")
    if value:
        return Path(value).expanduser().absolute()
    return Path(platformdirs.user_data_dir("elasticqa", appauthor=False))


def is_home_database(environ: Mapping[str, str]) -> bool:
    """Return whether the database contains only runs of this home: ELASTICQA_DB_URL may name a shared one."""
    return not environ.get("ELASTICQA_DB_URL")


def is_home_shared(environ: Mapping[str, str]) -> bool:
    """Return whether machines share the home directory, so that each needs its own database."""
    return file_system_of(home_of(environ), mounted()) in SHARED_FILE_SYSTEMS


def runs_dir_of(home: Path) -> Path:
    """Return the directory that contains one directory per run."""
    return home / "runs"


def mounted() -> str:
    """Return the text of `/proc/self/mountinfo`, or "" on a machine without it."""
    return MOUNTS.read_text() if MOUNTS.exists() else ""


def file_system_of(path: Path, mounts: str) -> str:
    """Return the type of the file system that contains `path`, or "" if no mount does; `path` need not exist."""
    resolved = path.resolve()
    best, kind = -1, ""
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        fields, types = left.split(), right.split()
        if len(fields) < 5 or not types:
            continue
        # Mount points have spaces and backslashes as octal escapes.
        point = Path(re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields[4]))
        # `>=`, since the last mount on a mount point hides earlier ones.
        if resolved.is_relative_to(point) and len(point.parts) >= best:
            best, kind = len(point.parts), types[0]
    return kind


def database_url(environ: Mapping[str, str], mounts: str | None = None) -> str:
    """Return the URL of the database: `ELASTICQA_DB_URL`, or a SQLite file on a local file system.

    The file is `elasticqa.db` in the home directory. If machines share that directory, it is a file in the user's
    cache directory, or, if that is shared as well, in the directory for temporary files; its name contains a digest
    of the home directory, so that each home has its own file.
    """
    url = environ.get("ELASTICQA_DB_URL")
    if url:
        return url
    home = home_of(environ)
    mounts = mounted() if mounts is None else mounts
    if file_system_of(home, mounts) not in SHARED_FILE_SYSTEMS:
        return f"sqlite:///{home / 'elasticqa.db'}"
    cache = Path(platformdirs.user_cache_dir("elasticqa", appauthor=False))
    if file_system_of(cache, mounts) in SHARED_FILE_SYSTEMS:
        cache = Path(tempfile.gettempdir()) / f"elasticqa-{os.getuid()}"
    digest = hashlib.sha256(os.fsencode(home.resolve())).hexdigest()[:12]
    return f"sqlite:///{cache / f'elasticqa-{digest}.db'}"
