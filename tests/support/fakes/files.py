"""What the Spark jobs need of a file system, in memory; held to `tests/spark/test_files.py` as the real one is."""

from __future__ import annotations


class MemoryFiles:
    """Text files by path, in the dictionary that stands for a session."""

    def __init__(self, session: dict[str, str]) -> None:
        self._texts = session

    def read(self, path: str) -> str | None:
        """Return a file's text, None if there is none."""
        return self._texts.get(path)

    def create(self, path: str, text: str) -> bool:
        """Write a file, or return False: there is one of that name."""
        if path in self._texts:
            return False
        self.replace(path, text)
        return True

    def replace(self, path: str, text: str) -> None:
        """Write a file in the place of one that may be there."""
        self._texts[path] = f"{text}\n"

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder."""
        inside = [path.removeprefix(f"{folder}/") for path in self._texts if path.startswith(f"{folder}/")]
        return list(dict.fromkeys(name.partition("/")[0] for name in inside))

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with all that is in it."""
        for each in [each for each in self._texts if f"{each}/".startswith(f"{path}/")]:
            del self._texts[each]
