"""The records of a run as charts on one HTML page. Their text comes from foreign pages, so all of it is escaped."""

from collections.abc import Sequence
from html import escape
from pathlib import Path
from statistics import median
from typing import Any

from ..negotiation.charts import Bar, bars

NOISE = ((45, "below 45 dB"), (55, "45 to 55 dB"), (1_000, "above 55 dB"))
STYLE = """
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem;margin:0}h2{font-size:1.1rem;margin:2rem 0 .5rem}
table{border-collapse:collapse;width:100%;font-size:.9rem}
th,td{text-align:left;padding:.3rem .6rem;border-bottom:1px solid #94a3b855}
td.n{text-align:right;font-variant-numeric:tabular-nums}
svg{width:100%;height:auto;font:12px system-ui,sans-serif}
"""


def page(run: str, question: str, records: Sequence[Any], claims: Sequence[str] = ()) -> str:
    """Return the HTML page. `records`: the data of the results, as the results answer has them."""
    kinds = sorted({str(each["kind"]) for each in records})
    parts = [
        _section("Records by topic and noise", bars([_by_noise(kind, records) for kind in kinds], title="Records")),
        _section("The quietest", _table(sorted(records, key=lambda each: each["noise_db"])[:15])),
        _section("Proof", "".join(f"<li>{escape(claim)}</li>" for claim in claims)),
    ]
    head = f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(question)}</title>'
    return (
        f"{head}<style>{STYLE}</style></head><body><h1>{escape(question)}</h1>"
        f"<p>{len(records):,} records · run {escape(run)}</p>{''.join(parts)}</body></html>\n"
    )


def write(folder: Path, text: str) -> Path:
    """Write the page into a folder and return its path."""
    path = folder / "research.html"
    path.write_text(text, encoding="utf-8")
    return path


def _by_noise(kind: str, records: Sequence[Any]) -> Bar:
    noises = [each["noise_db"] for each in records if each["kind"] == kind]
    below = [0, *(sum(1 for noise in noises if noise < limit) for limit, _ in NOISE)]
    parts = [(name, below[n + 1] - below[n]) for n, (_, name) in enumerate(NOISE)]
    return Bar(kind, parts, f"{len(noises)} · median {median(noises):.0f} dB")


def _table(records: Sequence[Any]) -> str:
    rows = "".join(
        f"<tr><td>{escape(each['maker'])}</td><td>{escape(each['name'])}</td><td>{escape(each['kind'])}</td>"
        f'<td class="n">{each["noise_db"]:.1f} dB</td><td class="n">{each["price_eur"]:,} €</td></tr>'
        for each in records
    )
    return f"<table>{rows}</table>"


def _section(title: str, inside: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{inside}</section>" if inside else ""
