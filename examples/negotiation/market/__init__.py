"""Suppliers to try things on: a separate HTTP process whose behaviour is declared and whose record is proof.

`python -m examples.negotiation.market --record market.jsonl --scenario demo` prints `{"url": …}` when it is open.
"""
