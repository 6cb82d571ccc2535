"""Judge the JSDoc types of the pages' own modules with TypeScript's compiler. Nothing is compiled, and no page needs it.

    python tools/check_types.py

The compiler is fetched once by npm, into the environment's folder `types`; its version and hash are those of
tools/types/package-lock.json. What is bundled from others is taken as it is used: of any type.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

try:
    from tools.fetch_browser import node_on_path
except ImportError:  # Called as a script, which sees its own folder only.
    from fetch_browser import node_on_path  # type: ignore[import-not-found, no-redef]

ROOT: Final = Path(__file__).resolve().parent.parent
STATIC: Final = ROOT / "src" / "evenflow" / "monitor" / "web" / "static"
FROM: Final = ROOT / "tools" / "types"
TO: Final = Path(sys.prefix) / "types"
FETCH_S: Final = 240
OPTIONS: Final[dict[str, Any]] = {
    "noEmit": True, "allowJs": True, "checkJs": True, "strict": True, "noImplicitAny": False, "useUnknownInCatchVariables": False,
    "target": "es2024", "lib": ["es2024", "dom", "dom.iterable"], "module": "esnext", "moduleResolution": "bundler", "types": [],
}  # fmt: skip
IMPORTED: Final = re.compile(r'import\s*\{([^}]*)\}\s*from\s*"\./vendor/(\w+)\.js"')


def compiler() -> Path:
    """Where it is; fetched if it is not there in this version."""
    lock = (FROM / "package-lock.json").read_bytes()
    stamp, wanted = TO / "lock", hashlib.sha256(lock).hexdigest()
    if not stamp.exists() or stamp.read_text() != wanted:
        shutil.rmtree(TO, ignore_errors=True)
        TO.mkdir(parents=True)
        for path in FROM.glob("*.json"):
            shutil.copy(path, TO)
        subprocess.run(["npm", "ci", "--silent", "--ignore-scripts"], cwd=TO, env=node_on_path(), check=True, timeout=FETCH_S)
        stamp.write_text(wanted)
    return TO / "node_modules" / "typescript" / "bin" / "tsc"


def stubs(texts: list[str]) -> dict[str, str]:
    """Of each bundle, what our modules take from it. Names that begin with a capital may stand where a type does, too."""
    names: dict[str, set[str]] = {}
    for text in texts:
        for taken, bundle in IMPORTED.findall(text):
            names.setdefault(bundle, set()).update(part.split(" as ")[0].strip() for part in taken.split(",") if part.strip())
    return {
        bundle: "".join(
            f"export const {name}: any;\n" + (f"export type {name} = any;\n" if name[0].isupper() else "") for name in sorted(taken)
        )
        for bundle, taken in names.items()
    }


def faults(folder: Path = STATIC) -> list[str]:
    """What the compiler finds wrong in the modules of a folder, a line each; none if all is right."""
    modules = sorted(folder.glob("*.js"))
    with tempfile.TemporaryDirectory() as made:
        at = Path(made)
        (at / "vendor").mkdir()
        for module in modules:
            shutil.copy(module, at)
        for bundle, text in stubs([module.read_text(encoding="utf-8") for module in modules]).items():
            (at / "vendor" / f"{bundle}.d.ts").write_text(text, encoding="utf-8")
        (at / "tsconfig.json").write_text(json.dumps({"compilerOptions": OPTIONS, "include": ["*.js"]}), encoding="utf-8")
        told = subprocess.run(
            ["node", str(compiler()), "-p", str(at), "--pretty", "false"],
            cwd=at,
            env=node_on_path(),
            capture_output=True,
            text=True,
            check=False,
        )
    found = [line for line in told.stdout.splitlines() if line.strip()]
    return found if told.returncode and found else [] if told.returncode == 0 else [told.stderr or "the compiler has failed"]


if __name__ == "__main__":
    wrong = faults()
    print("\n".join(wrong))
    sys.exit(bool(wrong))
