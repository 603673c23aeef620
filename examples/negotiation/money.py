"""Writes amounts as a reader expects them."""


def money(cents: int) -> str:
    """Format cents, for example as 1,234.50."""
    sign = "-" if cents < 0 else ""
    return f"{sign}{abs(cents) // 100:,}.{abs(cents) % 100:02d}"
