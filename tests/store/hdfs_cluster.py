"""HDFS on this machine, for tests: Hadoop's own name node and data node in one Java process (MiniDFSCluster), fetched with Maven."""

from __future__ import annotations

import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.ports import free_port

NEEDS = (
    "org.apache.hadoop:hadoop-client-minicluster:3.4.1",
    "junit:junit:4.13.2",  # Its test classes, which the mini cluster is one of, want these two.
    "org.mockito:mockito-core:4.11.0",
    "javax.xml.bind:jaxb-api:2.3.1",  # Java had it itself until version 10.
    "org.slf4j:slf4j-nop:1.7.36",
)
STARTS_S = 120


@contextmanager
def hdfs_cluster(folder: Path) -> Iterator[str]:
    """The URL of its root, over WebHDFS, until the end of the block. folder: for its blocks and its journal."""
    if shutil.which("mvn") is None or shutil.which("java") is None:
        pytest.skip("HDFS needs Maven and Java: install them")
    port = free_port()
    command = ["java", f"-Dtest.build.data={folder}", f"-Dhadoop.log.dir={folder}", "-cp", class_path(folder)]
    command += ["org.apache.hadoop.test.MiniDFSClusterManager", "-format", "-datanodes", "1", "-httpport", str(port)]
    command += ["-D", "dfs.permissions.enabled=false"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder) as cluster:
        try:
            wait_for(f"http://127.0.0.1:{port}/webhdfs/v1/?op=LISTSTATUS", cluster)
            yield f"webhdfs://127.0.0.1:{port}"
        finally:
            cluster.kill()


def class_path(folder: Path) -> str:
    """Where Maven has put what is needed."""
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version></dependency>"
        for group, name, version in (need.split(":") for need in NEEDS)
    )
    (folder / "pom.xml").write_text(
        "<project><modelVersion>4.0.0</modelVersion><groupId>tests</groupId><artifactId>hdfs</artifactId><version>1</version>"
        f"<packaging>pom</packaging><dependencies>{dependencies}</dependencies></project>"
    )
    fetch = ["mvn", "-q", "-B", "dependency:build-classpath", f"-Dmdep.outputFile={folder / 'classpath'}"]
    fetched = subprocess.run(fetch, cwd=folder, capture_output=True, text=True, check=False)
    if fetched.returncode:
        pytest.skip(f"Maven cannot fetch Hadoop: {fetched.stdout[-300:]}")
    return (folder / "classpath").read_text().strip()


def wait_for(url: str, cluster: subprocess.Popen[bytes]) -> None:
    """Until the data node is there, too: it answers when the name node knows where blocks can go."""
    for _ in range(STARTS_S):
        if cluster.poll() is not None:
            raise AssertionError(f"HDFS has ended with {cluster.returncode}")
        try:
            urllib.request.urlopen(url, timeout=1).close()
            return
        except OSError:
            try:
                cluster.wait(timeout=1)
            except subprocess.TimeoutExpired:
                pass
    raise AssertionError(f"HDFS does not answer after {STARTS_S} s")
