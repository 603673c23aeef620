"""Rules of a site for programs that read it (robots.txt, RFC 9309), and the addresses that a run may read."""

import re
from typing import NamedTuple
from urllib.parse import quote, unquote, urljoin, urlsplit

ADDRESS_CHARS_MAX = 300
UNCHANGED = "/%:@!$&'()*+,;=~-._?"


class Robots(NamedTuple):
    """Rules for one program: pairs of a path pattern and whether it is allowed, and the seconds between requests."""

    rules: tuple[tuple[str, bool], ...] = ()
    delay: float = 0.0

    def allows(self, path: str) -> bool:
        """Return True if a path may be read: the longest matching rule decides, and of two equal ones the allowing."""
        matching = [(len(pattern), allowed) for pattern, allowed in self.rules if _pattern(pattern).match(path)]
        return max(matching, default=(0, True))[1]


def parse(text: str, agent: str) -> Robots:
    """Return the rules for a program: those of the groups that name it, else those of `*`. Bad lines are ignored."""
    groups: dict[str, tuple[list[tuple[str, bool]], list[float]]] = {}
    names: list[str] = []
    naming = False
    for line in text.splitlines():
        word, _, value = (part.strip() for part in line.partition("#")[0].partition(":"))
        match word.lower():
            case "user-agent":
                names = [*names, value.lower()] if naming else [value.lower()]
                for name in names:
                    groups.setdefault(name, ([], []))
            case "allow" | "disallow" if value:
                for name in names:
                    groups[name][0].append((value, word.lower() == "allow"))
            case "crawl-delay" if re.fullmatch(r"\d+(\.\d+)?", value):
                for name in names:
                    groups[name][1].append(float(value))
        naming = word.lower() == "user-agent"
    rules, delays = groups.get(agent.lower()) or groups.get("*") or ([], [])
    return Robots(tuple(rules), max(delays, default=0.0))


def address(site: str, base: str, link: str) -> str | None:
    """Return the path of a link on a page of the site, or None if it leads elsewhere or is too long.

    One page has one path: without fragment, trailing slash and the marks by which sites tell visitors apart.
    """
    try:
        target = urlsplit(urljoin(urljoin(site, base), link.strip()))
        if (target.scheme, target.netloc) != urlsplit(site)[:2]:
            return None
    except ValueError:  # a link that is no address
        return None
    path = quote(unquote(target.path or "/", errors="replace"), safe=UNCHANGED)
    kept = [part for part in target.query.split("&") if part and part.partition("=")[0] not in ("ref", "utm_source")]
    whole = (path.rstrip("/") or "/") + (f"?{quote('&'.join(kept), safe=UNCHANGED)}" if kept else "")
    return whole if len(whole) <= ADDRESS_CHARS_MAX and ".." not in whole else None


def _pattern(pattern: str) -> re.Pattern[str]:
    """Return a rule as a pattern: `*` is any text, `$` the end."""
    ends = pattern.endswith("$")
    parts = ".*".join(re.escape(part) for part in re.sub(r"\*+", "*", pattern.removesuffix("$")).split("*"))
    return re.compile(parts + ("$" if ends else ""))
