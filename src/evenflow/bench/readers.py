"""Readers of a page: open streams, of which everything is read, as so many tabs of a browser would."""

from __future__ import annotations

import multiprocessing
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

OPENED_WITHIN_S = 30.0


@contextmanager
def readers(url: str, token: str, count: int) -> Iterator[None]:
    """So many, each with a thread of this process."""
    host, port = url.split("/")[2].split(":")
    request = f"GET /api/v1/stream HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
    wires = []
    for _ in range(count):
        wire = socket.create_connection((host, int(port)), timeout=20)
        wire.sendall(request)
        wires.append(wire)

    def read(wire: socket.socket) -> None:
        try:
            while wire.recv(1 << 16):
                pass
        except OSError:
            pass  # It is over.

    threads = [threading.Thread(target=read, args=(wire,), daemon=True) for wire in wires]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for wire in wires:
            wire.close()


@contextmanager
def readers_apart(url: str, token: str, count: int) -> Iterator[None]:
    """So many, in a process of their own, as a browser is: what they cost is not the driver's. None is no process."""
    if not count:
        yield
        return
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_read, args=(theirs, url, token, count), daemon=True)
    process.start()
    theirs.close()
    try:
        if not ours.poll(OPENED_WITHIN_S):
            raise TimeoutError(f"{count} readers have not opened their streams within {OPENED_WITHIN_S:.0f} s")
        ours.recv()
        yield
    finally:
        ours.close()
        process.join(5)
        if process.is_alive():
            process.kill()


def _read(told: Connection, url: str, token: str, count: int) -> None:
    """In their process."""
    with readers(url, token, count):
        told.send(count)
        try:
            told.recv()
        except EOFError:
            return  # Enough was read.
