"""Stores that are really there: directories, a bucket of a server that the tests start, and HDFS on this machine."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from evenflow.store.objects import Store
from evenflow.store.opening import open_store
from tests.drawn import but
from tests.store.hdfs_cluster import hdfs_cluster
from tests.store.s3_server import ACCESS, s3_server


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    with s3_server() as url:
        yield url


@pytest.fixture(scope="session")
def s3_bucket(s3_endpoint: str) -> str:
    """One for all tests: to make it takes longer than most of them."""
    import s3fs

    bucket = f"b-{uuid.uuid4().hex[:12]}"
    s3fs.S3FileSystem(**ACCESS, endpoint_url=s3_endpoint, skip_instance_cache=True).mkdir(bucket)
    return bucket


@pytest.fixture
def s3_store(s3_endpoint: str, s3_bucket: str) -> Store:
    """An empty folder of the bucket."""
    return open_store(f"s3://{s3_bucket}/{uuid.uuid4().hex[:12]}/where", {**ACCESS, "endpoint_url": s3_endpoint})


@pytest.fixture(scope="session")
def hdfs_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with hdfs_cluster(tmp_path_factory.mktemp("hdfs")) as url:
        yield url


@pytest.fixture
def webhdfs_store(hdfs_url: str) -> Store:
    """An empty folder of a real HDFS."""
    return open_store(f"{hdfs_url}/{uuid.uuid4().hex[:12]}/location", {"user": "somebody"})


def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """An empty store of the kind that is asked for."""
    if request.param == "directory":
        return open_store(str(tmp_path / "location"))
    found: Store = request.getfixturevalue(f"{request.param}_store")
    return found


@pytest.fixture(params=but({"s3", "webhdfs"}, ["directory", "s3", "webhdfs"]))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """An empty store of each kind. What every store keeps is tried with one of S3 in `make test`, too: test_objects.py."""
    return opened(request, tmp_path)
