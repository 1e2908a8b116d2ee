"""Files that are replaced as a whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def replacing(path: str | Path) -> Iterator[IO[bytes]]:
    """A stream to a new file that takes ``path``'s place when the block ends well.

    A reader sees the old file or the whole new one; a block that raises leaves the old one and nothing else. The new
    file has the mode that any file of the user has (the umask's).
    """
    target = Path(path)
    draft = target.with_name(f".{target.name}.{os.urandom(6).hex()}.tmp")
    try:
        with open(draft, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, target)
    finally:
        draft.unlink(missing_ok=True)
