"""A location in a bucket of S3, or of a server that speaks like it, by way of s3fs.

An object is put under the condition that there is none (`If-None-Match: *`), which s3fs says for `mode="create"`. The server makes the
object when it has all of it, so it is whole. A request that was repeated because its answer was lost is refused like another writer's:
who is refused looks at what is there (see `evenflow.store.journal`).
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from inspect import signature
from typing import Any, Final
from urllib.parse import urlsplit

from evenflow.errors import LocationError
from evenflow.store.objects import MOST_BYTES, checked, is_name, within

MOST_AT_ONCE: Final = 5 << 30
"""An object is created by one request, the one that `probe` has tried: where objects are sent in parts, some servers and libraries drop
the condition without a word."""
REFUSED: Final = 412
"""What HTTP says when a condition does not hold. s3fs knows it only with AWS's own words in it."""
CONFLICT: Final = 409
"""Another conditional write of the same object is under way: who comes first is not decided yet."""
NOTHING_THERE: Final = 416
"""No byte of what was asked for: an empty object."""


class S3Store:
    """A `Store` in a bucket. options: of `s3fs.S3FileSystem`, such as `endpoint_url`, `key`, `secret`."""

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        try:
            import s3fs
        except ImportError as error:
            raise LocationError(f"checkpoint location {url}: install s3fs for it: pip install 'evenflow[s3]' ({error})") from error
        parts = urlsplit(url)
        if not parts.netloc or parts.query or parts.fragment:
            raise LocationError(f"checkpoint location {url}: write s3://bucket/path")
        self.url = url.rstrip("/")
        self._root = f"{parts.netloc}{parts.path.rstrip('/')}"
        own: dict[str, Any] = {"use_listings_cache": False, "skip_instance_cache": True, "default_cache_type": "none"}
        own["config_kwargs"] = {"retries": {"total_max_attempts": 1}}  # s3fs repeats what may pass by itself.
        known = set(signature(s3fs.S3FileSystem.__init__).parameters) - {"self", "kwargs", "asynchronous", "loop"}
        if unknown := sorted(set(options) - known):
            raise LocationError(f"checkpoint location {url}: s3fs has no option {unknown[0]!r}; it has {', '.join(sorted(known))}")
        try:
            self._fs = s3fs.S3FileSystem(**{**own, **options})
        except (TypeError, ValueError, KeyError) as error:
            raise LocationError(f"checkpoint location {url}: s3fs does not take these options: {error}") from error

    def _at(self, name: str) -> str:
        return f"{self._root}/{checked(name)}"

    def create(self, name: str, data: bytes) -> None:
        with _as_os_errors(name):
            if len(data) >= MOST_AT_ONCE:
                raise OSError(errno.EFBIG, f"S3 takes less than {MOST_AT_ONCE} bytes in one request", name)
            self._fs.pipe_file(self._at(name), data, mode="create", chunksize=MOST_AT_ONCE)

    def put(self, name: str, data: bytes) -> None:
        with _as_os_errors(name):
            self._fs.pipe_file(self._at(name), data)

    def get(self, name: str, most: int = MOST_BYTES) -> bytes:
        with _as_os_errors(name):
            try:
                return within(self._fs.cat_file(self._at(name), start=0, end=most + 1), most, name)
            except OSError as error:
                if _status(error) == NOTHING_THERE:
                    return b""
                raise

    def sizes(self, prefix: str = "") -> dict[str, int]:
        above, _, letters = prefix.rpartition("/")
        if above and not is_name(above):
            return {}
        folder = f"{self._root}/{above}" if above else self._root
        with _as_os_errors(prefix):
            found = self._fs.find(folder, prefix=letters, detail=True)
        inside = {path[len(self._root) + 1 :]: int(info["size"]) for path, info in found.items() if path.startswith(f"{self._root}/")}
        return {name: inside[name] for name in sorted(inside) if is_name(name) and name.startswith(prefix)}

    def names(self, prefix: str = "") -> list[str]:
        return list(self.sizes(prefix))

    def delete(self, name: str) -> None:
        with _as_os_errors(name), suppress(FileNotFoundError):
            self._fs.rm_file(self._at(name))

    def clear(self, folder: str, is_over: Callable[[str], bool]) -> int:
        return 0  # The server makes an object when it has all of it: a writer that is killed leaves nothing.


@contextmanager
def _as_os_errors(name: str) -> Iterator[None]:
    """What s3fs and the libraries below it raise, as the kinds of OSError that a `Store` raises."""
    try:
        yield
    except OSError as error:
        match _status(error):
            case int() as status if status == REFUSED:
                raise FileExistsError(errno.EEXIST, "there is such an object already", name) from error
            case int() as status if status == CONFLICT:
                raise OSError(errno.EBUSY, "another writer of the same object is not done yet", name) from error
        raise
    except Exception as error:
        # botocore's own errors (no credentials, no such host) and what a library of HTTP raises have no common kind.
        raise OSError(errno.EIO, f"{type(error).__name__}: {error}", name) from error


def _status(error: OSError) -> int | None:
    """The HTTP status that the server's refusal had, if the error comes from one."""
    response = getattr(error.__cause__, "response", None)
    return response.get("ResponseMetadata", {}).get("HTTPStatusCode") if isinstance(response, dict) else None
