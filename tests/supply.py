"""Supply chain of a release: the wheel, an SBOM, and an audit of known vulnerabilities.

Usage: scripts/supply [--to FOLDER]. The tools have fixed versions and run outside .venv. The registry is asked for the
tools, for the hashes of the extras' packages, and for known vulnerabilities of each locked package.
"""

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

ROOT: Final = Path(__file__).resolve().parents[1]
UV: Final = ROOT / ".tools/bin/uv"
LOCK: Final = ROOT / "requirements.txt"
CYCLONEDX: Final = "cyclonedx-bom==7.5.0"
PIP_AUDIT: Final = "pip-audit==2.10.1"
KNOWN_BAD: Final = "jinja2==3.1.2"
"""A package with vulnerabilities published in 2024. A service that does not report them gives no usable answer."""
CLEAN, BAD, UNKNOWN = 0, 1, 3
SHIPS: Final = frozenset({".py", ".typed", ".toml", ".json", ".html", ".css", ".js", ".svg"})
ABOUT: Final = frozenset({"METADATA", "WHEEL", "RECORD", "entry_points.txt", "LICENSE"})
OURS_ONLY: Final = frozenset({"tests", "test", "bench", "docs", "scripts", ".ci", "__pycache__"})
KEY: Final = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----\s+[A-Za-z0-9+/=]{32}|\bolt_[A-Za-z0-9_-]{40,}")
"""Pattern of a private key or an Outlast token."""


class Judged(NamedTuple):
    """Result of an audit in words."""

    code: int
    lines: list[str]


def build(folder: Path) -> Path:
    """Build the wheel from the checkout without the network."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    (wheel,) = folder.glob("outlast-*.whl")
    return wheel


def strangers(wheel: Path) -> list[str]:
    """Return files that do not belong into the wheel: tests, stores, keys, and files of unknown types."""
    found = []
    with zipfile.ZipFile(wheel) as opened:
        for name in opened.namelist():
            path = Path(name)
            about = path.parts[0].endswith(".dist-info")
            ours = path.suffix in SHIPS or path.name == "LICENSE"  # of a file that the package vendors
            at_home = path.name in ABOUT if about else path.parts[0] == "outlast" and ours
            if not at_home or OURS_ONLY.intersection(path.parts):
                found.append(f"{name} does not belong into the wheel")
            elif KEY.search(opened.read(name)):
                found.append(f"{name} has a key in it")
    return found


def judged(audit: Any) -> Judged:
    """Judge pip-audit's JSON: clean, vulnerable, or incomplete because packages were not answered."""
    asked = audit["dependencies"]
    bad = [
        f"{each['name']} {each['version']}: {known['id']}, mended in {', '.join(known['fix_versions']) or 'no version'}"
        for each in asked
        for known in each.get("vulns", ())
    ]
    silent = [each["name"] for each in asked if "skip_reason" in each]
    if bad:
        return Judged(BAD, bad)
    if silent or not asked:
        return Judged(UNKNOWN, [f"nothing is said of {len(silent)} of {len(asked)}: {', '.join(silent[:5])}"])
    return Judged(CLEAN, [f"nothing is known against {len(asked)} packages"])


def _tool(package: str, *command: str) -> None:
    env = {**os.environ, "UV_SYSTEM_CERTS": "1", "UV_PYTHON_DOWNLOADS": "never"}
    done = subprocess.run([UV, "tool", "run", "--from", package, *command], env=env, cwd=ROOT, check=False,
                          capture_output=True, text=True)  # fmt: skip
    if done.returncode not in (0, 1):  # 1: pip-audit has found a vulnerability and written it
        raise click.ClickException(f"{command[0]} failed:\n{done.stderr}")


def sbom(folder: Path) -> Path:
    """Return the packages of an install with every extra, with version and hash, as CycloneDX."""
    shipped, out = folder / "shipped.txt", folder / "outlast.cdx.json"
    resolve = [UV, "pip", "compile", "--quiet", "--universal", "--generate-hashes", "--no-emit-index-url",
               "--no-header", "--all-extras", "--constraints", LOCK, "pyproject.toml",
               "--output-file", shipped]  # fmt: skip
    subprocess.run(resolve, cwd=ROOT, check=True, env={**os.environ, "UV_SYSTEM_CERTS": "1"}, stdout=subprocess.DEVNULL)
    _tool(CYCLONEDX, "cyclonedx-py", "requirements", str(shipped), "--pyproject", "pyproject.toml",
          "--output-reproducible", "--output-file", str(out))  # fmt: skip
    return out


def audit(folder: Path) -> Judged:
    """Audit every locked package, those of the tests included."""
    first = folder / "known-bad.txt"
    first.write_text(KNOWN_BAD + "\n", encoding="utf-8")
    if judged(_asked(first, folder / "known-bad.json", "--no-deps")).code != BAD:
        return Judged(
            UNKNOWN, [f"the registry does not say what is known against {KNOWN_BAD}: its answers are not usable"]
        )
    return judged(_asked(LOCK, folder / "audit.json", "--require-hashes"))


def _asked(requirements: Path, out: Path, *options: str) -> Any:
    out.unlink(missing_ok=True)
    _tool(PIP_AUDIT, "pip-audit", "--requirement", str(requirements), "--disable-pip", *options, "--format", "json",
          "--vulnerability-service", "pypi", "--progress-spinner", "off", "--output", str(out))  # fmt: skip
    return json.loads(out.read_text(encoding="utf-8")) if out.exists() else {"dependencies": []}


@click.command()
@click.option("--to", "folder", type=click.Path(path_type=Path), default=ROOT / "dist", help="Where it is put [dist].")
def main(folder: Path) -> None:
    """Build the wheel and its SBOM, and audit its packages."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("outlast-*.whl"):
        old.unlink()
    wheel = build(folder)
    wrong = strangers(wheel)
    click.echo("\n".join([f"wheel  {wheel}", *wrong]))
    out = sbom(folder)
    click.echo(f"sbom   {out}: {len(json.loads(out.read_text(encoding='utf-8'))['components'])} packages")
    found = audit(folder)
    click.echo("audit  " + "\n       ".join(found.lines))
    sys.exit(BAD if wrong else found.code)


if __name__ == "__main__":
    main()
