"""The disk cache of object code: files named by a key, checked by a digest, bounded in size."""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from rlx.core import flags

#: First bytes of an entry: the name of this format.
MAGIC = b"rlxobj1\n"
_DIGEST = hashlib.sha256().digest_size
#: Seconds after which a temporary file is taken for what a killed process left behind.
_ABANDONED = 3600.0
#: Bytes that this process has written since it last looked at the whole cache.
_written = 0


def directory() -> Path | None:
    """Where objects are kept: flag ``cache_dir``, else ``rlx`` in the user's cache directory; None when
    switched off.
    """
    if not flags.get("cache"):
        return None
    if chosen := flags.get("cache_dir"):
        return Path(chosen) / "objects"
    user = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(user) if user else Path.home() / ".cache") / "rlx" / "objects"
    except RuntimeError:  # this user has no home directory
        return None


def read(key: str) -> bytes | None:
    """The object of that key; None when there is none, or what is there is damaged (it is then removed)."""
    root = directory()
    if root is None:
        return None
    path = root / key[:2] / key
    try:
        data = path.read_bytes()
    except OSError:
        return None
    head = len(MAGIC) + _DIGEST
    payload = data[head:]
    if data[:len(MAGIC)] != MAGIC or hashlib.sha256(payload).digest() != data[len(MAGIC):head]:
        _remove(path)
        return None
    try:
        os.utime(path)  # the time of last use, which decides what goes first
    except OSError:
        pass
    return payload


def write(key: str, payload: bytes) -> None:
    """Keep an object: its file appears whole or not at all. An unwritable directory is no error."""
    root = directory()
    if root is None:
        return
    folder, digest = root / key[:2], hashlib.sha256(payload).digest()
    temporary = None
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=folder, suffix=".tmp")
        with os.fdopen(handle, "wb") as f:
            f.write(MAGIC + digest + payload)
        os.replace(temporary, folder / key)
    except OSError:
        if temporary is not None:
            _remove(Path(temporary))
        return
    limit = int(flags.get("cache_size"))
    if _due(digest, len(payload), limit):
        prune(root, limit)


def _due(digest: bytes, size: int, limit: int) -> bool:
    """Whether to look at the whole cache now: that takes as long as it has entries, so not after every write.

    One write of 64 looks, whatever the process, and each that has written a sixty-fourth of the limit: the cache stays
    within a few hundredths of its limit.
    """
    global _written
    _written += size
    if digest[0] % 64 and _written < limit // 64:
        return False
    _written = 0
    return True


def prune(root: Path, limit: int) -> None:
    """When the entries exceed ``limit`` bytes, remove those used longest ago down to nine tenths of it."""
    entries = sorted(_entries(root))
    total = sum(size for _, size, _ in entries)
    target = limit * 9 // 10 if total > limit else total
    oldest = time.time() - _ABANDONED
    for used, size, path in entries:
        abandoned = path.endswith(".tmp") and used < oldest
        if abandoned or (total > target and not path.endswith(".tmp")):
            _remove(Path(path))
            total -= size


def _entries(root: Path) -> Iterator[tuple[float, int, str]]:
    """(time of last use, bytes, path) of every file; files that vanish meanwhile are left out."""
    for folder in _scan(str(root)):
        for entry in _scan(folder.path) if folder.is_dir() else ():
            try:
                info = entry.stat()
            except OSError:
                continue
            yield info.st_mtime, info.st_size, entry.path


def _scan(path: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as found:
            return list(found)
    except OSError:
        return []


def _remove(path: Path) -> None:
    try:
        path.unlink()
    except OSError:
        pass
