"""What is wrong with a session and its executors, from facts: no effects here. `doctor` collects them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from evenflow.world.spark.executor.requirements import lacks

Severity = Literal["error", "warning", "fine"]
CLOCKS_S: Final = 1.0
ROOM_BYTES: Final = 1 << 30
DESCRIPTORS: Final = 1024
BESIDE_MB: Final = 500
"""What a site takes beside its frames and its state."""
SLOW_STORE_MS: Final = 500.0


@dataclass(frozen=True, slots=True)
class Finding:
    """subject: session, executors, network, clocks, temporary or store. remedy: what to do, "" where nothing has to be."""

    severity: Severity
    subject: str
    what: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What `ef.doctor` has found, the worst first."""

    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Nothing stands in the way of a run."""
        return all(finding.severity != "error" for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        return {"ok": self.ok, "findings": [asdict(finding) for finding in self.findings]}

    def __str__(self) -> str:
        return "\n".join(f"{f.severity:8}{f.subject}: {f.what}{'. ' + f.remedy if f.remedy else ''}" for f in self.findings)


def diagnosis(findings: Sequence[Finding]) -> Diagnosis:
    order: tuple[Severity, ...] = ("error", "warning", "fine")
    return Diagnosis(tuple(sorted(findings, key=lambda finding: order.index(finding.severity))))


@dataclass(frozen=True, slots=True)
class Session:
    """What Spark says. slots: tasks that can run at the same time. wanted: sites and spares. overhead_mb: None where nobody limits it."""

    wanted: int
    executors: int
    slots: int
    allocates: bool
    most: int | None
    overhead_mb: int | None
    site_memory_mb: int


def of_session(facts: Session) -> list[Finding]:
    found: list[Finding] = []
    may = facts.executors if not facts.allocates else facts.most if facts.most is not None else facts.wanted
    if may < facts.wanted:
        said = "spark.dynamicAllocation.maxExecutors" if facts.allocates else "spark.executor.instances, spark.cores.max, or the workers"
        what = f"{facts.wanted} sites and spares need {facts.wanted} executors, and there are {may}"
        found.append(Finding("error", "session", what, f"Raise {said}, or take fewer sites or spares"))
    elif facts.executors < facts.wanted:
        found.append(Finding("fine", "session", f"{facts.executors} of {facts.wanted} executors are there; Spark starts the others"))
    else:
        found.append(Finding("fine", "session", f"{facts.executors} executors for {facts.wanted} sites and spares"))
    if facts.executors >= facts.wanted and facts.slots <= facts.wanted:
        what = f"{facts.slots} task slots for {facts.wanted} sites and spares: none is left for rows that Spark reads"
        found.append(Finding("warning", "session", what, "Set spark.executor.cores=2, if Spark feeds or reads the dataflow"))
    need_mb = facts.site_memory_mb + BESIDE_MB
    if facts.overhead_mb is not None and facts.overhead_mb < need_mb:
        what = f"executors have {facts.overhead_mb} MB beside the heap, and a site takes about {need_mb} MB and its state"
        found.append(Finding("warning", "session", what, f"Set spark.executor.memoryOverhead={need_mb}m or more"))
    return found


def of_executors(seen: Sequence[Mapping[str, Any]], there: Sequence[str], own: Mapping[str, str]) -> list[Finding]:
    """seen: what `examined.examine` returned. there: ids of the executors. own: versions at the driver."""
    found: list[Finding] = []
    for facts in seen:
        who = f"executor {facts['executor']} ({facts['host']})"
        for lack in lacks(facts["versions"]):
            remedy = "Install it there, or say which Python executors use: spark.pyspark.python, PYSPARK_PYTHON, --archives"
            found.append(Finding("error", "executors", f"{who}: {lack}, in {facts['python']}", remedy))
        for name, version in sorted(facts["versions"].items()):
            if version and own.get(name) and version != own[name]:
                severity: Severity = "error" if name == "evenflow" else "warning"
                what = f"{who} has {name} {version} and the driver {own[name]}"
                found.append(Finding(severity, "executors", what, "Install the same everywhere"))
        if facts["descriptors"] < DESCRIPTORS:
            what = f"{who} may have {facts['descriptors']} files open"
            found.append(Finding("warning", "executors", what, f"Raise it to {DESCRIPTORS} or more (ulimit -n)"))
        if facts["temporary_wrong"]:
            what = f"{who} cannot write to {facts['temporary']}: {facts['temporary_wrong']}"
            found.append(Finding("error", "temporary", what, "Make room there, or set TMPDIR for executors (spark.executorEnv.TMPDIR)"))
        elif facts["temporary_bytes"] < ROOM_BYTES:
            what = f"{who} has {facts['temporary_bytes'] >> 20} MB left in {facts['temporary']}"
            found.append(Finding("warning", "temporary", what, "Make room there: kernels and spilled state need it"))
    missed = sorted(set(there) - {str(facts["executor"]) for facts in seen})
    if missed:
        what = f"executors {', '.join(missed)} could not be looked at: their task slots were taken"
        found.append(Finding("warning", "executors", what, "Ask again when they are free"))
    if not found and seen:
        python = seen[0]["versions"]["python"]
        found.append(Finding("fine", "executors", f"{len(seen)} executors have Python {python} and what sites need"))
    return found


def of_network(seen: Sequence[Mapping[str, Any]]) -> list[Finding]:
    found: list[Finding] = []
    for facts in seen:
        who = f"executor {facts['executor']} ({facts['host']})"
        if facts["driver"]:
            remedy = "Set spark.driver.host to an address that executors reach, and open the driver's port (option ports) to them"
            found.append(Finding("error", "network", f"{who}: the driver at {facts['driver']}", remedy))
        if facts["listens"]:
            remedy = "Widen the option ports to one for each site of a machine, and one for the driver on its own"
            found.append(Finding("error", "network", f"{who}: {facts['listens']}", remedy))
        for other, why in sorted(facts["unreached"].items()):
            remedy = "Open the ports between executors (option ports says which), or say with bind at which address they listen"
            found.append(Finding("error", "network", f"{who} does not reach executor {other} at {why}", remedy))
    if not found and seen:
        found.append(Finding("fine", "network", f"{len(seen)} executors reach each other and the driver"))
    return found


def of_clocks(offsets_s: Mapping[str, float]) -> list[Finding]:
    """offsets_s: of each executor's clock from the driver's."""
    found = [
        Finding(
            "warning", "clocks", f"the clock of executor {who} is {abs(offset):.1f} s {'ahead' if offset > 0 else 'behind'}",
            "Set the clocks of all machines by NTP: latency and certificates are judged by them",
        )
        for who, offset in sorted(offsets_s.items())
        if abs(offset) > CLOCKS_S
    ]  # fmt: skip
    return found or [Finding("fine", "clocks", f"within {CLOCKS_S:g} s of the driver's")] if offsets_s else found


def of_store(location: str, problem: str, took_ms: float) -> list[Finding]:
    """problem: what opening and proving it raised, "" if nothing."""
    if problem:
        return [Finding("error", "store", f"{location}: {problem}", "Mend that, or give another location")]
    if took_ms > SLOW_STORE_MS:
        what = f"{location} takes {took_ms:.0f} ms for an object"
        return [Finding("warning", "store", what, "Output waits for the journal: take a store that is nearer, or a larger journal_ms")]
    return [Finding("fine", "store", f"{location} creates an object only if there is none, in {took_ms:.0f} ms")]
