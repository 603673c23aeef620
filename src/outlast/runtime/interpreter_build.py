"""Tell the build of this interpreter, because one without PGO runs a step a quarter slower.

Run as a file it exits with 1 if the interpreter is known to be slow: scripts/setup calls it before anything is
installed, so it imports the standard library only.
"""

import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

FLAGS = ("PY_CFLAGS", "PY_CORE_CFLAGS", "PY_CFLAGS_NODIST", "CFLAGS_NODIST", "PY_LDFLAGS_NODIST", "OPT")
PROFILES = ("-fprofile-use", "-fprofile-instr-use")
DISTRIBUTION = "/usr"  # distributions train their builds by other means than configure, and do not record it


class Build(NamedTuple):
    """Build of an interpreter. `optimised` is None if its configuration does not tell."""

    optimised: bool | None
    text: str


def build_of(config: Mapping[str, Any], *, packaged: bool, debug: bool = False) -> Build:
    """Judge a build by its `sysconfig` variables. `packaged`: built by a distribution or conda."""
    arguments = config.get("CONFIG_ARGS") or ""
    flags = " ".join(str(config.get(name) or "") for name in FLAGS)
    trained = "--enable-optimizations" in arguments or any(flag in flags for flag in PROFILES)
    linked = ", LTO" if "--with-lto" in arguments or "-flto" in flags else ""
    levels = [flag for flag in str(config.get("PY_CFLAGS") or "").split() if flag.startswith("-O")]
    if debug or config.get("Py_DEBUG"):
        return Build(False, "debug build")
    if levels and levels[-1] in ("-O0", "-Og"):
        return Build(False, f"compiled with {levels[-1]}")
    if trained:
        return Build(True, f"PGO{linked}")
    if packaged or not arguments or linked:
        return Build(None, f"PGO unknown{linked}")
    return Build(False, "without PGO")


def build() -> Build:
    """Judge the build of this interpreter."""
    packaged = sys.base_prefix == DISTRIBUTION or (Path(sys.base_prefix) / "conda-meta").is_dir()
    return build_of(sysconfig.get_config_vars(), packaged=packaged, debug=hasattr(sys, "gettotalrefcount"))


if __name__ == "__main__":
    sys.exit(build().optimised is False)
