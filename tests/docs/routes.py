"""The list of routes in docs/http.md, from the declarations: `python -m tests.docs.pages` writes it."""

from outlast.operations import OPERATIONS


def routes() -> str:
    """Return each route with its title and the least roles that may use it, in the order of paths."""
    lines = ["| route | purpose | least role |", "|---|---|---|"]
    found = {(each.path, each.method): each for each in OPERATIONS}
    for (path, method), each in sorted(found.items()):
        roles = " or ".join(f"`{role}`" for role in each.roles)
        people = "; people only" if each.people_only else ""
        lines.append(f"| `{method} {path}` | {each.summary[0].lower()}{each.summary[1:]} | {roles}{people} |")
    return "\n".join(lines) + "\n"
