"""A disk by the letter of POSIX: what a file system may show after a power cut, and what it must.

Nothing lasts but what was synced. `fsync` of a file makes its bytes and its size last, not its name; `fsync` of a
folder makes the names in it last, of files and folders alike, not what they name. All else may be there after a cut, or
not, in any combination and any order: names that were made, linked, renamed or removed (a rename is there whole or not
at all), and of a file each page of each write, its size without its bytes (zeros are read then), a size in between.

Real file systems do better, each in its own way; who survives all of this survives them, too.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from tests.support.powercut.operations import Kind

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Mapping, Sequence

    from tests.support.powercut.operations import Operation

PAGE_BYTES = 4096
# What stands on a disk: files with their bytes, folders with None.
Tree: TypeAlias = "Mapping[str, bytes | None]"
_ALL_BELOW = 64  # with so few combinations, each of them is tried
_PAIRS_MAX = 40
_MIXES = 12
_PREFIXES_MAX = 6


@dataclass(eq=False, slots=True)
class File:
    """An inode: what lasts, and what is in memory only."""

    lasting: bytes = b""
    now: bytes = b""
    shortest: int = 0  # that it was since it was synced

    def write(self, at: int, content: bytes) -> None:
        """Put bytes somewhere, behind zeros if that is beyond the end."""
        before = self.now[:at].ljust(at, b"\0")
        self.now = before + content + self.now[at + len(content) :]

    def resize(self, size: int) -> None:
        """Cut the file off, or fill it up with zeros."""
        self.now = self.now[:size].ljust(size, b"\0")
        self.shortest = min(self.shortest, size)

    def sync(self) -> None:
        """Let all of it last."""
        self.lasting, self.shortest = self.now, len(self.now)

    def variants(self) -> list[bytes]:
        """Return what a cut may leave of it: first all of it, second what lasts."""
        if self.now == self.lasting:
            return [self.now]
        old, new = self.lasting, self.now
        found = [new, old, old[: len(new)].ljust(len(new), b"\0"), old[: self.shortest]]
        starts = range(0, len(new), PAGE_BYTES)
        found += [self._without(page) for page in starts]
        ends = [*starts, *(at + 1 for at, byte in enumerate(new) if byte == ord("\n")), len(new) - 1, len(new) // 2]
        usable = sorted({end for end in ends if 0 <= end < len(new)})
        step = max(1, len(usable) // _PREFIXES_MAX)
        found += [new[:end] + old[end:] if len(old) > end else new[:end] for end in usable[::step]]
        return list(dict.fromkeys(found))

    def _without(self, at: int) -> bytes:
        """Return the new bytes with one page as it was, or zeros where nothing was."""
        end = min(at + PAGE_BYTES, len(self.now))
        return self.now[:at] + self.lasting[at:end].ljust(end - at, b"\0") + self.now[end:]


@dataclass(eq=False, slots=True)
class Folder:
    """A folder; which names are in it is what `Change`s say."""


Node: TypeAlias = "File | Folder"


@dataclass(eq=False, slots=True)
class Change:
    """One operation on names: each part says what a name in a folder stands for from then on."""

    parts: tuple[tuple[Folder, str, Node | None], ...]
    lasts: bool = False


@dataclass(slots=True)
class Disk:
    """A disk, and what is on its way to it."""

    root: Folder = field(default_factory=Folder)
    changes: list[Change] = field(default_factory=list)
    inodes: dict[int, File] = field(default_factory=dict)

    def apply(self, operation: Operation) -> None:
        """Do what was recorded."""
        kind, path, target = operation.kind, operation.path, operation.target
        if kind is Kind.OPEN:
            self._open(operation)
        elif kind is Kind.WRITE:
            self.inodes[operation.inode].write(operation.number, operation.content)
        elif kind is Kind.TRUNCATE:
            self.inodes[operation.inode].resize(operation.number)
        elif kind is Kind.SYNC:
            self.inodes[operation.inode].sync()
        elif kind is Kind.SYNC_FOLDER:
            self._sync_folder(path)
        elif kind is Kind.MKDIR:
            self._change((path, Folder()))
        elif kind is Kind.LINK:
            self._change((target, self._find(path)))
        elif kind is Kind.RENAME:
            self._change((path, None), (target, self._find(path)))
        elif kind is Kind.UNLINK:
            self._change((path, None))

    def _open(self, operation: Operation) -> None:
        found = self._find(operation.path)
        if found is None:
            found = File()
            self._change((operation.path, found))
        assert isinstance(found, File)
        self.inodes[operation.inode] = found
        if operation.number:
            found.resize(0)

    def _sync_folder(self, path: str) -> None:
        folder = self._find(path)
        for change in self.changes:
            change.lasts |= any(part[0] is folder for part in change.parts)

    def _change(self, *parts: tuple[str, Node | None]) -> None:
        split = [(path.rpartition("/"), node) for path, node in parts]
        self.changes.append(Change(tuple((self._folder(where), name, node) for (where, _, name), node in split)))

    def _folder(self, path: str) -> Folder:
        folder = self._find(path)
        assert isinstance(folder, Folder), f"{path} is no folder"
        return folder

    def _find(self, path: str) -> Node | None:
        node: Node | None = self.root
        names = _names(self.changes)
        for part in filter(None, path.split("/")):
            node = names.get(node, {}).get(part) if isinstance(node, Folder) else None
        return node

    def tree(self) -> Tree:
        """Return what stands there without a cut."""
        return _tree(self.root, self.changes, {})

    def lasting(self) -> Tree:
        """Return what stands there after a cut at the least: nothing that was not synced."""
        changes = [change for change in self.changes if change.lasts]
        return _tree(self.root, changes, {file: file.lasting for file in self._reachable()})

    def without_one_name(self) -> Iterator[Tree]:
        """Yield what stands there if a single operation on names is lost: where order was relied on, that shows it."""
        for lost in (change for change in self.changes if not change.lasts):
            yield _tree(self.root, [change for change in self.changes if change is not lost], {})

    def after_a_cut(self, rng: random.Random) -> Iterator[Tree]:
        """Yield what may stand there after a cut now; some more than once.

        All combinations where they are few. Else nothing lost, all lost, each loss alone and each survivor alone, and
        a sample of pairs and mixes.
        """
        loose = [change for change in self.changes if not change.lasts]
        lasting = [change for change in self.changes if change.lasts]
        files = [file for file in self._reachable() if file.now != file.lasting]
        variants = [file.variants() for file in files]
        for picks in _picks([2] * len(loose) + [len(each) for each in variants], rng):
            kept = [change for change, lost in zip(loose, picks, strict=False) if not lost]
            chosen = [each[pick] for each, pick in zip(variants, picks[len(loose) :], strict=True)]
            ordered = self.changes if len(kept) == len(loose) else _in_order(self.changes, {*lasting, *kept})
            yield _tree(self.root, ordered, dict(zip(files, chosen, strict=True)))

    def _reachable(self) -> list[File]:
        """Return the files that may have a name after a cut."""
        last: dict[tuple[Folder, str], Node | None] = {}
        found: dict[Node, None] = {}
        for change in self.changes:
            for folder, name, node in change.parts:
                if change.lasts:
                    last[folder, name] = node
                elif node is not None:
                    found[node] = None
        found |= dict.fromkeys(node for node in last.values() if node is not None)
        return [node for node in found if isinstance(node, File)]


def _picks(counts: Sequence[int], rng: random.Random) -> Iterator[tuple[int, ...]]:
    """Yield combinations of what became of each loose thing: 0 is whole, 1 is lost, more is in between."""
    whole, lost = [0] * len(counts), [1] * len(counts)
    combinations = 1
    for count in counts:
        combinations *= count
    if combinations <= _ALL_BELOW:
        yield from itertools.product(*map(range, counts))
        return
    yield tuple(whole)
    yield tuple(lost)
    singles = [(at, pick) for at, count in enumerate(counts) for pick in range(1, count)]
    for at, pick in singles:
        yield _with(whole, (at, pick))
        yield _with(lost, (at, 0 if pick == 1 else pick))
    pairs = list(itertools.combinations(singles, 2))
    for pair in rng.sample(pairs, min(len(pairs), _PAIRS_MAX)):
        yield _with(whole, *pair)
    for _ in range(_MIXES):
        yield tuple(rng.randrange(count) for count in counts)


def _with(base: Sequence[int], *picks: tuple[int, int]) -> tuple[int, ...]:
    changed = list(base)
    for at, pick in picks:
        changed[at] = pick
    return tuple(changed)


def _in_order(changes: Sequence[Change], chosen: set[Change]) -> list[Change]:
    return [change for change in changes if change in chosen]


def _names(changes: Sequence[Change]) -> dict[Node, dict[str, Node]]:
    """Return what each folder's names stand for after these changes."""
    found: dict[Node, dict[str, Node]] = {}
    for change in changes:
        for folder, name, node in change.parts:
            names = found.setdefault(folder, {})
            if node is None:
                names.pop(name, None)
            else:
                names[name] = node
    return found


def _tree(root: Folder, changes: Sequence[Change], contents: Mapping[File, bytes]) -> Tree:
    names = _names(changes)
    tree: dict[str, bytes | None] = {}

    def descend(folder: Folder, path: str) -> None:
        for name, node in names.get(folder, {}).items():
            if isinstance(node, File):
                tree[path + name] = contents.get(node, node.now)
            else:
                tree[path + name] = None
                descend(node, f"{path}{name}/")

    descend(root, "")
    return dict(sorted(tree.items()))
