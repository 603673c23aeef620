"""One repeat of one measurement, `python -m bench.one NAME SIZE` prints its figures as JSON."""

import json
import sys
from importlib import import_module

from bench.figures import Size


def main(name: str, size: str) -> None:
    """Measure once."""
    print(json.dumps(import_module(f"bench.measures.{name}").measure(Size(size))))


if __name__ == "__main__":
    main(*sys.argv[1:])
