"""Keys: they wrap the data key of each session. They come from a text, or a key service keeps them."""

from __future__ import annotations

import base64
import binascii
import os
import re
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self, final

from midturn.errors import InvalidArgument, MissingExtra
from midturn.stores.privacy import create, is_shared
from midturn.stores.secrets import Secret

if TYPE_CHECKING:
    from collections.abc import Mapping

KEY_BYTES = 32
NONCE_BYTES = 12
VARIABLE, FILE_VARIABLE = "MIDTURN_KEYS", "MIDTURN_KEYS_FILE"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_NEW = "To make one: midturn keys new"
_WRONG_ID = "the id of a key has up to 64 letters, digits and . _ -, such as 2026-11"


class KeyService(Protocol):
    """Something that keeps keys and never hands them out, such as a key management service."""

    async def wrap(self, data_key: bytes, context: str) -> tuple[str, bytes]:
        """Encrypt a data key with the current key; return the id of that key, and the wrapped data key.

        ``context`` is the id of a session. Bind the wrapped key to it where the service can, as associated data.
        """
        ...

    async def unwrap(self, key_id: str, wrapped: bytes, context: str) -> bytes:
        """Return the data key.

        ``key_id`` comes from the database. Refuse the id of a key that is not yours: a service that also takes keys of
        strangers would open what a stranger has sealed.

        Raises:
            LookupError: the service has no such key, or the wrapped key was not made with it. Any other exception means
                that the service cannot be reached.
        """
        ...


@final
class Keys:
    """Keys by id. The first one wraps the data keys of new sessions; all of them can unwrap.

    ``Keys({"2026-11": key, "2026-05": older})`` takes keys of 32 bytes. :meth:`from_env`, :meth:`from_file` and
    :meth:`parse` read them from text.

    Raises:
        InvalidArgument: there is no key, or one has a wrong id or a wrong length.
    """

    __slots__ = ("_ciphers", "current")

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        self._ciphers: dict[str, AESGCM] = {}
        if problem := _problem_of(keys):
            del keys  # some tools show the locals of a frame that raises
            raise InvalidArgument(problem, path="keys")
        self._ciphers = {key_id: cipher(key) for key_id, key in keys.items()}
        self.current = next(iter(keys))
        """The id of the key that wraps new data keys."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the keys in a text like ``2026-11:<base64>,2026-05:<base64>``; line breaks separate, too."""
        found, problem = _parsed(text)
        problem = problem or _problem_of(found)
        if problem:
            del text, found  # as above
            raise InvalidArgument(problem, path="keys")
        return cls(found)

    @classmethod
    def from_env(cls) -> Self:
        """Return the keys in ``$MIDTURN_KEYS``, or in the file that ``$MIDTURN_KEYS_FILE`` names.

        Raises:
            InvalidArgument: neither is set, or both are.
        """
        found = cls.in_env()
        if found is None:
            raise InvalidArgument(f"set {VARIABLE} or {FILE_VARIABLE}. {_NEW}", path="keys")
        return found

    @classmethod
    def in_env(cls) -> Self | None:
        """Return the keys that :meth:`from_env` returns; ``None`` if neither variable is set."""
        has_text, file = bool(os.environ.get(VARIABLE, "").strip()), os.environ.get(FILE_VARIABLE, "")
        if has_text and file:
            raise InvalidArgument(f"{VARIABLE} and {FILE_VARIABLE} are both set; keep one", path="keys")
        if file:
            return cls.from_file(file)
        return cls.parse(os.environ[VARIABLE]) if has_text else None

    @classmethod
    def from_file(cls, path: str | Path) -> Self:
        """Return the keys in a file, one on each line; ``#`` begins a comment.

        Raises:
            InvalidArgument: the file cannot be read, or other users of the machine can read it.
        """
        path = Path(path)
        try:
            found, shared = Secret(path.read_text("ascii")), is_shared(path)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "not a text of ASCII characters"
            raise InvalidArgument(f"{path} cannot be read: {why}", path="keys") from None
        if shared:
            raise InvalidArgument(f"other users can read {path}; type: chmod 600 {path}", path="keys")
        return cls.parse(found.reveal())

    async def wrap(self, data_key: bytes, context: str) -> tuple[str, bytes]:
        """Encrypt a data key with the first key."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        return self.current, nonce + self._ciphers[self.current].encrypt(nonce, data_key, _bound(self.current, context))

    async def unwrap(self, key_id: str, wrapped: bytes, context: str) -> bytes:
        """Return the data key that :meth:`wrap` has encrypted."""
        from cryptography.exceptions import InvalidTag

        if key_id not in self._ciphers:
            raise LookupError(f"the keys at hand are {', '.join(self._ciphers)}")
        try:
            nonce, sealed = wrapped[:NONCE_BYTES], wrapped[NONCE_BYTES:]
            return self._ciphers[key_id].decrypt(nonce, sealed, _bound(key_id, context))
        except (InvalidTag, ValueError):
            raise LookupError("the key with this id is another one, or the record was changed") from None

    def __repr__(self) -> str:
        return f"Keys({', '.join(self._ciphers)})"

    def __reduce__(self) -> str:
        raise TypeError("keys are not pickled; read them again in the other process")


def check_keys(keys: KeyService) -> KeyService:
    """Return the keys, if they can wrap and unwrap.

    Raises:
        InvalidArgument: they cannot.
    """
    if isinstance(keys, type) or not all(callable(getattr(keys, name, None)) for name in ("wrap", "unwrap")):
        kind = keys.__name__ if isinstance(keys, type) else type(keys).__name__
        hint = "Give midturn.Keys.from_env(), or an object with async wrap and unwrap."
        raise InvalidArgument(f"a {kind} is no keys", path="keys", hint=hint)
    return keys


def new_key(key_id: str) -> str:
    """Return a new random key as text, ``ID:BASE64``."""
    if not _ID.fullmatch(key_id):
        raise InvalidArgument(_WRONG_ID, path="keys")
    return f"{key_id}:{base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()}"


def add_to_file(path: Path, line: str) -> None:
    """Write a key as the first line of a key file, which only its owner can read from then on."""
    text = Secret(f"{line}\n")
    if path.exists():
        Keys.from_file(path)
        text = Secret(f"{line}\n{path.read_text('ascii')}")
    Keys.parse(text.reveal())  # the id may be taken
    beside = path.with_name(f".{path.name}.new")
    beside.unlink(missing_ok=True)  # an interrupted call left it
    with os.fdopen(create(beside, os.O_WRONLY), "w", encoding="ascii") as file:
        file.write(text.reveal())
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def cipher(key: bytes) -> AESGCM:
    """Return AES-256-GCM with a key.

    Raises:
        MissingExtra: the package with the cipher is not installed.
    """
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise MissingExtra("sealed", f"keys need cryptography ({error})") from None
    return AESGCM(key)


def _bound(key_id: str, context: str) -> bytes:
    return f"midturn data key\0{key_id}\0{context}".encode()


def _parsed(text: str) -> tuple[dict[str, bytes], str]:
    """Return the keys in a text, and what is wrong with it. No message quotes the text: all of it may be a key."""
    found: dict[str, bytes] = {}
    for item in re.split(r"[,\n]", re.sub(r"#.*", "", text)):
        key_id, colon, encoded = item.strip().partition(":")
        if not key_id and not colon:
            continue
        if not colon:
            return found, "a key has the form ID:BASE64"
        if not _ID.fullmatch(key_id):
            return found, _WRONG_ID
        if key_id in found:
            return found, f"the id {key_id!r} occurs twice"
        try:
            found[key_id] = base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError):
            return found, f"key {key_id!r} is not base64. {_NEW}"
    return found, ""


def _problem_of(keys: Mapping[str, bytes]) -> str:
    if not keys:
        return f"there is none. {_NEW}"
    for key_id, key in keys.items():
        if not isinstance(key_id, str) or not _ID.fullmatch(key_id):  # pyright: ignore[reportUnnecessaryIsInstance]
            return _WRONG_ID
        if not isinstance(key, bytes) or len(key) != KEY_BYTES:  # pyright: ignore[reportUnnecessaryIsInstance]
            return f"key {key_id!r} must have {KEY_BYTES} bytes. {_NEW}"
    return ""


if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
