"""A purchase, negotiated with real suppliers over HTTP in seven nodes; Outlast's worked example.

In a checkout it is `examples.negotiation`, served by `outlast worker examples.negotiation.workflow`. The modules, in
the order of the story:

- `purchase` what is asked for, `kraljic` what kind of buy it is, `governance` under which rules and with whom;
- `suppliers` the calls to the suppliers' mailboxes, `inbox` where their bids come back;
- `scoring` which bid is best and why, `workflow` the seven nodes, `summary` the end told in words;
- `market` suppliers of our own for trying it out, `record` what they saw, counted.
"""
