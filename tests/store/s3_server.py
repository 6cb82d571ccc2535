"""A server that speaks S3, in a process of its own: moto's, which keeps objects in memory.

It looks whether an object is there and makes it in two steps, so it serves one request after the other: what S3 promises, that a
conditional put is one step, holds here for that reason. Run as a program it prints its port, and ends when its input does.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

ACCESS = {"key": "somebody", "secret": "something"}


@contextmanager
def s3_server() -> Iterator[str]:
    """Its URL; it serves until the end of the block."""
    with subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        assert server.stdin is not None and server.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        finally:
            server.stdin.close()
            server.wait(timeout=30)


def serve() -> None:
    import threading

    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    server = make_server("127.0.0.1", 0, DomainDispatcherApplication(create_backend_app), threaded=False)
    threading.Thread(target=lambda: (sys.stdin.read(), server.shutdown()), daemon=True).start()
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    serve()
