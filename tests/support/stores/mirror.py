"""A local copy of a table in a store, for judges that read folders."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from ingestor.delta.probe import PROBE_FOLDER

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.stores.stores import Store

_PAUSE_SECONDS = 0.5  # whoever waits asks again and again, and each time all is listed
_CHANGES = "_last_checkpoint"  # all else in a table is written once


class Mirror:
    """Fetches what has come since; what the store no longer has stays, for nothing here removes anything."""

    def __init__(self, store: Store, bucket: str, folder: Path, path: str = "table") -> None:
        self._store = store
        self._client = store.client()
        self._bucket = bucket
        self._folder = folder
        self._again_at = 0.0
        self._prefix = f"{path}/"

    def fetch(self) -> None:
        """Bring the copy up to date, unless it was just now: a log entry only after what it names."""
        if time.monotonic() < self._again_at:
            return
        self._again_at = time.monotonic() + _PAUSE_SECONDS
        keys = [key for key in self._store.objects(self._bucket, self._prefix) if PROBE_FOLDER not in key]
        for key in sorted(keys, key=lambda key: ("_delta_log" in key, key)):
            target = self._folder / key.removeprefix(self._prefix)
            if not target.exists() or target.name == _CHANGES:
                target.parent.mkdir(parents=True, exist_ok=True)
                with contextlib.suppress(self._client.exceptions.NoSuchKey):  # a draft was thrown away meanwhile
                    target.write_bytes(self._client.get_object(Bucket=self._bucket, Key=key)["Body"].read())
