"""Formatting of amounts of money."""


def money(cents: int) -> str:
    """Format an amount in cents, such as 1,234.50."""
    sign = "-" if cents < 0 else ""
    return f"{sign}{abs(cents) // 100:,}.{abs(cents) % 100:02d}"
