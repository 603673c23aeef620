"""A purchase, negotiated with real suppliers over HTTP in seven nodes; Outlast's worked example.

In a checkout it is `examples.negotiation`, served by `outlast worker examples.negotiation.workflow`. The modules, in
the order of the story:

- `purchase` what is asked for, `governance` under which rules, `kraljic` what kind of buy it is;
- `placing` looks that up, in a `cache` by its key or by what is `similar`;
- `suppliers` the calls to the suppliers' mailboxes, `inbox` where their bids come back;
- `course` the workflow, `routes` its four ways to negotiate, `workflow` the nodes around them;
- `judging` and `scoring` which bid is best and why, `advice` what to do besides ordering it;
- `summary` and `report` the end told in words, `report_page` with `charts` as a page;
- `market` suppliers of our own for trying it out, `record` what they saw, counted; `samples` what to try;
- `demo` plays all of it for `outlast demo`.
"""
