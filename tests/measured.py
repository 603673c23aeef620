"""One rule for campaigns: a total of nothing is no success."""


def unmeasured(**counts: int) -> list[str]:
    """Return a fault for each count that is zero. Without anything played, every sentence about it would be true."""
    return [f"nothing was measured: 0 {name.replace('_', ' ')}" for name, count in counts.items() if count <= 0]
