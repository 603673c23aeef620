"""Reasons for attention and their choices in docs/attention.md: `python -m tests.docs.pages` writes them."""

from outlast.core.machine import CONSEQUENCES, FOR_REASON, RULES, consequence_of


def reasons() -> str:
    """Return each reason with its cause and its choices, in the order of the rules."""
    lines = ["| reason | cause | choices |", "|---|---|---|"]
    lines += [f"| `{reason}` | {rule.cause} | {' · '.join(rule.choices)} |" for reason, rule in RULES.items()]
    return "\n".join(lines) + "\n"


def choices() -> str:
    """Return each choice with its consequence, and how that differs for a reason."""
    lines = ["| choice | what follows |", "|---|---|"]
    for choice in CONSEQUENCES:
        others = [f"`{of}`: {consequence_of(choice, of)}" for of, each in FOR_REASON if each is choice]
        lines.append(f"| {choice} | {'. '.join([consequence_of(choice), *others])} |")
    return "\n".join(lines) + "\n"
