"""The facts about rows that a sealed head has, so that no row can be removed or put back unnoticed.

The layers above count the rows of most kinds, and miss one that is not there. They cannot miss a ``KEY`` row, because
its number comes from a key that anybody may send. And nobody but the head knows that a row was replaced.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from hashlib import blake2b
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Self

from midturn.record.head import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from midturn.record.head import Write

COUNTED = (Kind.TURN, Kind.CHECKPOINT, Kind.CALL, Kind.FAILURE, Kind.DECISION)
"""Kinds whose numbers rise. A row after the last one shows that the head is an older one."""

KeyRows = dict[int, int]
"""The number of each ``KEY`` row, and the seq of its write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The facts about rows that a sealed head has."""

    salt: str = field(default_factory=lambda: token_hex(16))
    keys: int = 0
    """Number of ``KEY`` rows."""
    digest: int = 0
    """A sum of keyed digests of the ``KEY`` rows and their seqs, which rows join and leave in any order."""
    last: Mapping[str, int] = field(default_factory=dict[str, int])
    """The greatest number ever of each kind in :data:`COUNTED`."""
    replaced: Mapping[str, int] = field(default_factory=dict[str, int])
    """The rows that replace older ones, as ``kind:n``, and the seq of the write. Rows of bodies are not among them: an
    older one has the same bodies and more, so it changes nothing."""

    @classmethod
    def of(cls, meta: Mapping[str, Any]) -> Self:
        """Return the manifest that :meth:`plain` has written into a head."""
        return cls(
            salt=meta["salt"],
            keys=meta["keys"],
            digest=int(meta["digest"], 16),
            last=meta["last"],
            replaced=meta["replaced"],
        )

    def plain(self) -> dict[str, Any]:
        """Return the manifest as JSON."""
        return {
            "salt": self.salt,
            "keys": self.keys,
            "digest": f"{self.digest:x}",
            "last": self.last,
            "replaced": self.replaced,
        }

    def after(self, write: Write, keys: KeyRows | None) -> tuple[Self, KeyRows | None]:
        """Return the manifest and the ``KEY`` rows after a write; ``keys`` may be unknown if it removes none."""
        last, replaced = dict(self.last), dict(self.replaced)
        for name in self.replaced:
            kind, n = map(int, name.split(":"))
            if _removes(write, Kind(kind), n):
                del replaced[name]
        for row in write.rows:
            if row.kind in COUNTED:
                name = str(int(row.kind))
                last[name] = max(last.get(name, -1), row.n)
            if row.kind not in (Kind.KEY, Kind.BODY) and _removes(write, row.kind, row.n):
                replaced[f"{int(row.kind)}:{row.n}"] = write.seq + 1
        return self._with_keys(replace(self, last=last, replaced=replaced), write, keys)

    def resealed(self, write: Write, keys: KeyRows | None) -> tuple[Self, KeyRows | None]:
        """Return what :meth:`after` does, for a write that replaces each of its rows by the same row."""
        names = [f"{int(row.kind)}:{row.n}" for row in write.rows]
        replaced = {name: write.seq + 1 if name in names else seq for name, seq in self.replaced.items()}
        return self._with_keys(replace(self, replaced=replaced), write, keys)

    def with_plain(self, kind: Kind, numbers: Sequence[int]) -> Self:
        """Return the manifest with the rows of a kind that are not sealed, whose seq counts as 0."""
        if kind is not Kind.KEY:
            return replace(self, last={**self.last, str(int(kind)): numbers[-1]}) if numbers else self
        digest = 0
        for n in numbers:
            digest ^= self._digest_of(n, 0)
        return replace(self, keys=len(numbers), digest=digest)

    def _with_keys(self, manifest: Self, write: Write, keys: KeyRows | None) -> tuple[Self, KeyRows | None]:
        added = [row.n for row in write.rows if row.kind is Kind.KEY]
        removals = [removal for removal in write.removes if removal.kind is Kind.KEY]
        if not added and not removals:
            return manifest, keys  # there may be many of them, and most writes are about others
        count, digest = self.keys, self.digest
        left = None if keys is None else dict(keys)
        for n, seq in (keys or {}).items() if removals else ():
            if _removes(write, Kind.KEY, n):
                count, digest = count - 1, digest ^ self._digest_of(n, seq)
                (left or {}).pop(n)
        for n in added:
            count, digest = count + 1, digest ^ self._digest_of(n, write.seq + 1)
            if left is not None:
                left[n] = write.seq + 1
        return replace(manifest, keys=count, digest=digest), left

    def same_keys(self, other: Manifest) -> bool:
        """Return whether two manifests have the same ``KEY`` rows."""
        return (self.salt, self.keys, self.digest) == (other.salt, other.keys, other.digest)

    def are_all(self, keys: KeyRows) -> bool:
        """Return whether these are the ``KEY`` rows of the session."""
        digest = 0
        for n, seq in keys.items():
            digest ^= self._digest_of(n, seq)
        return len(keys) == self.keys and digest == self.digest

    def seq_of(self, kind: Kind, n: int) -> int | None:
        """Return the seq of the write that has replaced a row; ``None`` if the row was never replaced."""
        return self.replaced.get(f"{int(kind)}:{n}")

    def next(self, kind: Kind) -> int:
        """Return the first number that no row of a kind has reached."""
        return self.last.get(str(int(kind)), -1) + 1

    def _digest_of(self, n: int, seq: int) -> int:
        digest = blake2b(n.to_bytes(8) + seq.to_bytes(8), key=bytes.fromhex(self.salt), digest_size=16)
        return int.from_bytes(digest.digest())


def _removes(write: Write, kind: Kind, n: int) -> bool:
    return any(removal.has(kind, n) for removal in write.removes)
