"""The files under deploy/: manifests are whole and agree with each other, with the code and with the documents.

Nothing is run: neither a cluster nor the operator is here. What is held is that each parses, has what its kind needs, and says the same
ports, labels, accounts and versions as the others.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml", reason="PyYAML comes with the tests' S3 server")
ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def objects() -> dict[str, dict[str, Any]]:
    """By kind."""
    return {each["kind"]: each for path in MANIFESTS for each in yaml.safe_load_all(path.read_text())}


def test_there_are_manifests() -> None:
    assert {"ServiceAccount", "Role", "RoleBinding", "NetworkPolicy", "SparkApplication"} == set(objects())


@pytest.mark.parametrize("kind", ["ServiceAccount", "Role", "RoleBinding", "NetworkPolicy", "SparkApplication"])
def test_each_object_has_what_kubernetes_needs(kind: str) -> None:
    found = objects()[kind]
    assert re.fullmatch(r"v1|[a-z0-9.-]+/v[0-9a-z]+", found["apiVersion"])
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", found["metadata"]["name"]) and found["metadata"]["namespace"] == "streams"


@pytest.mark.parametrize("kind", ["ServiceAccount", "Role", "RoleBinding", "NetworkPolicy"])
def test_each_object_fits_the_schema_of_kubernetes(kind: str) -> None:
    """Of the newest version that the validator knows; a field of another name is an error."""
    schemas = pytest.importorskip("kubernetes_validate", reason="the schemas of Kubernetes are not installed")
    found = objects()[kind]
    schemas.validate(found, schemas.latest_version(), strict=True)
    with pytest.raises(schemas.ValidationError):
        schemas.validate({**found, "speck": {}}, schemas.latest_version(), strict=True)


def test_the_application_is_as_the_spark_operator_wants_it() -> None:
    """The operator's own models take it, and keep every field: one that they do not know they would leave out."""
    models = pytest.importorskip("kubeflow_spark_api.models", reason="the Spark operator's models are not installed")
    read, given = models.SparkV1beta2SparkApplication.from_dict, objects()["SparkApplication"]
    assert kept(given, read(given).to_dict()) == given
    misspelt = {**given, "spec": {**given["spec"], "sparkVersoin": "4"}}
    assert kept(misspelt, read(misspelt).to_dict()) == given


def kept(given: Any, found: Any) -> Any:
    """What is in both, in the shape of the first."""
    if isinstance(given, dict) and isinstance(found, dict):
        return {key: kept(value, found[key]) for key, value in given.items() if key in found}
    if isinstance(given, list) and isinstance(found, list):
        return [kept(*pair) for pair in zip(given, found, strict=False)]
    return found


def test_who_speaks_with_whom_is_the_same_everywhere() -> None:
    found = objects()
    spec, policy = found["SparkApplication"]["spec"], found["NetworkPolicy"]["spec"]
    labels = policy["podSelector"]["matchLabels"]
    assert spec["driver"]["labels"] == spec["executor"]["labels"] == labels == policy["ingress"][0]["from"][0]["podSelector"]["matchLabels"]
    account = found["ServiceAccount"]["metadata"]["name"]
    assert spec["driver"]["serviceAccount"] == account == found["RoleBinding"]["subjects"][0]["name"]
    assert found["RoleBinding"]["roleRef"]["name"] == found["Role"]["metadata"]["name"]
    ports = policy["ingress"][0]["ports"]
    assert {str(port["port"]) for port in ports} >= {spec["sparkConf"]["spark.driver.port"], spec["sparkConf"]["spark.blockManager.port"]}
    [of_sites] = [f"{port['port']}-{port['endPort']}" for port in ports if "endPort" in port]
    assert of_sites in (ROOT / "docs" / "deploy.md").read_text()


def test_an_application_has_room_for_its_sites() -> None:
    spec = objects()["SparkApplication"]["spec"]
    assert spec["executor"]["cores"] >= 2 and spec["executor"]["memoryOverhead"] == "3g"
    assert spec["restartPolicy"]["type"] == "Always" and all(isinstance(value, str) for value in spec["sparkConf"].values())


def test_the_image_is_of_this_version_and_brings_what_is_declared() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    assert f"evenflow:{PROJECT['version']}" in text and objects()["SparkApplication"]["spec"]["image"] == f"evenflow:{PROJECT['version']}"
    for copied in re.findall(r"^COPY (.*) \S+$", text, re.MULTILINE):
        assert all((ROOT / name).exists() for name in copied.split())
    assert "python -m evenflow.kernels" in text and "[local]" not in text
    [spark] = re.findall(r"^ARG SPARK=apache/spark:([\d.]+)", text, re.MULTILINE)
    assert objects()["SparkApplication"]["spec"]["sparkVersion"] == spark
    [lowest] = [
        each.partition(">=")[2].partition(",")[0] for each in PROJECT["optional-dependencies"]["local"] if each.startswith("pyspark")
    ]
    assert spark.startswith(lowest)
    instructions = {line.split()[0] for line in re.sub(r"\\\n", " ", text).splitlines() if line and not line.startswith("#")}
    assert instructions == {"ARG", "FROM", "USER", "ENV", "RUN", "COPY"}
