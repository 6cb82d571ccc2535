"""A reverse proxy as simple as they come: everything below a prefix goes to another server, piece by piece as it comes."""

from __future__ import annotations

import contextlib
import http.client
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

HOP = {"connection", "transfer-encoding", "keep-alive", "host", "content-length"}


@contextlib.contextmanager
def proxied(target: str, prefix: str = "/some/where/", host: str = "spark.example", *, holds: bool = False) -> Iterator[str]:
    """Yields the proxy's own address. `prefix` leads to `target`, asked for as `host`; `/outer` is a page that has it in a frame, `/bare`
    one that has nothing. holds: an answer goes on when all of it is there, which a stream never is."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            return

        def answer(self, body: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            if self.path.startswith("/outer"):
                inner = f"http://127.0.0.1:{self.server.server_address[1]}{prefix}#token=act"
                frame = f'<iframe id="inner" src="{inner}" width="1200" height="800"></iframe>'
                return self.answer(f"<!doctype html><title>outer</title>{frame}".encode(), "text/html")
            if self.path == "/bare":
                return self.answer(b'<!doctype html><title>bare</title><link rel="icon" href="data:">', "text/html")
            if not self.path.startswith(prefix):
                return self.send_error(404)
            connection = http.client.HTTPConnection(urlsplit(target).netloc, timeout=30)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP} | {"Host": host}
            try:
                connection.request(self.command, "/" + self.path.removeprefix(prefix), body or None, headers)
                got = connection.getresponse()
                pieces = iter(lambda: got.read1(1 << 16), b"")
                if holds:
                    pieces = iter([b"".join(pieces)])
                self.send_response(got.status)
                for name, value in got.getheaders():
                    if name.lower() not in HOP:
                        self.send_header(name, value)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                for piece in filter(None, pieces):
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                self.wfile.write(b"0\r\n\r\n")
            except OSError:
                self.close_connection = True  # One of both has gone away.
            finally:
                connection.close()
            return None

        do_POST = do_GET

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            return

    server = Quiet(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
