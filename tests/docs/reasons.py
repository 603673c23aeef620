"""The reasons for attention in docs/attention.md, from their rules: `python -m tests.docs.pages` writes them."""

from outlast.core.machine import RULES


def reasons() -> str:
    """Return each reason with its cause and its choices, in the order of the rules."""
    lines = ["| reason | cause | choices |", "|---|---|---|"]
    lines += [f"| `{reason}` | {rule.cause} | {' · '.join(rule.choices)} |" for reason, rule in RULES.items()]
    return "\n".join(lines) + "\n"
