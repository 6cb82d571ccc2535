"""A location in HDFS, over WebHDFS: no library of Hadoop's and no Java are needed where Python runs.

An object is written under a name beside the one that it will have, and renamed with the option to refuse (`renameoptions=NONE`): the name
node does that in one step, or says FileAlreadyExistsException. An HttpFS gateway does not know that option, so none is a location. Who
asks is said by name (`user`) or proven by a delegation token (`token`); there is no Kerberos handshake here.
"""

from __future__ import annotations

import errno
import getpass
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, Final
from urllib.parse import quote, unquote, urlencode, urlsplit

from evenflow.errors import LocationError
from evenflow.store.objects import MOST_BYTES, beside_name, checked, is_name, meant_by, within

PORTS: Final = {"webhdfs": 9870, "swebhdfs": 9871}
TIMEOUT_S: Final = 30
MOST_ANSWER_BYTES: Final = 1 << 28
"""A name node's answer is a listing of one folder at most."""
KINDS: Final[Mapping[str, int]] = {
    "FileNotFoundException": errno.ENOENT, "FileAlreadyExistsException": errno.EEXIST, "AccessControlException": errno.EACCES,
    "SecurityException": errno.EACCES, "ParentNotDirectoryException": errno.ENOTDIR, "DSQuotaExceededException": errno.EDQUOT,
    "NSQuotaExceededException": errno.EDQUOT, "QuotaExceededException": errno.EDQUOT, "SafeModeException": errno.EROFS,
    "StandbyException": errno.EHOSTDOWN, "UnsupportedOperationException": errno.ENOTSUP,
    "PathIsNotEmptyDirectoryException": errno.ENOTEMPTY,
}  # fmt: skip
"""What Hadoop calls a failure, as an errno."""


class WebHdfsStore:
    """A `Store` in a folder of HDFS. options: `user`, or `token`."""

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        parts = urlsplit(url)
        if not parts.hostname or not parts.path.strip("/") or parts.query or set(options) - {"user", "token"}:
            raise LocationError(f"checkpoint location {url}: write {parts.scheme}://host:port/path, with the options user or token")
        self.url = url.rstrip("/")
        self._secure = parts.scheme == "swebhdfs"
        self._host = f"{parts.hostname}:{parts.port or PORTS[parts.scheme]}"
        self._root = "/" + unquote(parts.path).strip("/")
        token = options.get("token")
        user = options.get("user") or parts.username or getpass.getuser()
        self._who = {"delegation": str(token)} if token else {"user.name": str(user)}

    def create(self, name: str, data: bytes) -> None:
        with self._beside(name, data) as beside:
            self._ask("PUT", "RENAME", beside, destination=self._at(name), renameoptions="NONE")

    def put(self, name: str, data: bytes) -> None:
        with self._beside(name, data) as beside:
            self._ask("PUT", "RENAME", beside, destination=self._at(name), renameoptions="OVERWRITE")

    def get(self, name: str, most: int = MOST_BYTES) -> bytes:
        return within(self._ask("GET", "OPEN", self._at(name), most=most + 1, offset="0", length=str(most + 1)), most, name)

    def sizes(self, prefix: str = "") -> dict[str, int]:
        above = prefix.rpartition("/")[0]
        if above and not is_name(above):
            return {}
        found = dict(self._walk(f"{above}/" if above else ""))
        return {name: found[name] for name in sorted(found) if name.startswith(prefix)}

    def names(self, prefix: str = "") -> list[str]:
        return list(self.sizes(prefix))

    def delete(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._ask("DELETE", "DELETE", self._at(name), recursive="false")

    def clear(self, folder: str, is_over: Callable[[str], bool]) -> int:
        return self._clear(folder, is_over)[0]

    def _clear(self, folder: str, is_over: Callable[[str], bool]) -> tuple[int, bool]:
        """See `Store.clear`; and whether anything was left there."""
        cleared, left = 0, False
        for leaf, kind, _ in self._listed(folder):
            meant = meant_by(leaf)
            if kind == "FILE" and meant is not None and is_over(folder + meant):
                cleared += self._remove(folder + leaf)
            elif kind == "DIRECTORY" and is_name(folder + leaf):
                more, full = self._clear(f"{folder}{leaf}/", is_over)
                cleared += more
                left |= full or not is_over(f"{folder}{leaf}/") or not self._remove(folder + leaf)
            else:
                left = True
        return cleared, left

    def _remove(self, path: str) -> bool:
        """A file, or a folder if nothing is in it, below the root. False if it was gone already, or is not empty any more."""
        try:
            self._ask("DELETE", "DELETE", f"{self._root}/{path}", recursive="false")
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTEMPTY):
                raise
            return False
        return True

    # ------------------------------------------------------------ what these are made of

    def _at(self, name: str) -> str:
        return f"{self._root}/{checked(name)}"

    @contextmanager
    def _beside(self, name: str, data: bytes) -> Iterator[str]:
        """The path of a file with these bytes, under a name that nobody looks at. It loses that name in the end."""
        above, _, leaf = self._at(name).rpartition("/")
        beside = f"{above}/{beside_name(leaf)}"
        try:
            # Folders that are there stay as they are. One that goes before the file is in it is made again with that.
            self._ask("PUT", "MKDIRS", above, permission="700")
            self._ask("PUT", "CREATE", beside, body=data, overwrite="false", permission="600", data="true")
            yield beside
        finally:
            with suppress(OSError):
                self._ask("DELETE", "DELETE", beside, recursive="false")

    def _walk(self, above: str) -> Iterator[tuple[str, int]]:
        """Names and sizes of the files in a folder and below it."""
        for leaf, kind, size in self._listed(above):
            if is_name(above + leaf):
                if kind == "DIRECTORY":
                    yield from self._walk(f"{above}{leaf}/")
                elif kind == "FILE":
                    yield above + leaf, size

    def _listed(self, above: str) -> list[tuple[str, str, int]]:
        """(name, kind, bytes) of all that is in a folder; nothing if there is none."""
        try:
            answer = self._ask("GET", "LISTSTATUS", f"{self._root}/{above}".rstrip("/"))
        except FileNotFoundError:
            return []
        try:
            return [(str(e["pathSuffix"]), str(e["type"]), int(e["length"])) for e in json.loads(answer)["FileStatuses"]["FileStatus"]]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise OSError(errno.EPROTO, f"the name node's listing cannot be read ({error})", above) from error

    def _ask(self, method: str, op: str, path: str, body: bytes | None = None, most: int = MOST_ANSWER_BYTES, **said: str) -> bytes:
        """What the name node answers, or the data node that it sends us to. body: goes to the data node only."""
        query = urlencode({"op": op, **self._who, **said})
        status, answer, place = self._request(self._secure, self._host, method, f"/webhdfs/v1{quote(path)}?{query}", None, most)
        if status == 307 and place is not None:
            to = urlsplit(place)
            target = f"{to.path}?{to.query}" if to.query else to.path
            status, answer, _ = self._request(to.scheme == "https", to.netloc, method, target, body, most)
        if status in (200, 201):
            return answer
        raise _refusal(status, answer, path)

    def _request(self, secure: bool, host: str, method: str, target: str, body: bytes | None, most: int) -> tuple[int, bytes, str | None]:
        connection = (HTTPSConnection if secure else HTTPConnection)(host, timeout=TIMEOUT_S)
        try:
            connection.request(method, target, body, {"Content-Type": "application/octet-stream"})
            answer = connection.getresponse()
            data = answer.read(most)
            if answer.length and len(data) < most:  # To ask for so many bytes at most is not told that the connection has ended before.
                raise OSError(errno.EPROTO, f"the answer was cut off: {answer.length} bytes of it are missing", host)
            return answer.status, data, answer.getheader("Location")
        except HTTPException as error:
            raise OSError(errno.EPROTO, f"{type(error).__name__}: {error}", host) from error
        finally:
            connection.close()


def _refusal(status: int, answer: bytes, path: str) -> OSError:
    """The error that Hadoop describes in JSON."""
    try:
        said = json.loads(answer)["RemoteException"]
        kind, message = str(said["exception"]), str(said["message"]).partition("\n")[0][:300]
    except (ValueError, KeyError, TypeError, RecursionError):
        kind, message = "", f"HTTP status {status}"
    code = errno.EACCES if status == 401 else KINDS.get(kind, errno.EIO)
    return OSError(code, f"{kind}: {message}" if kind else message, path)
