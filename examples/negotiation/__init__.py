"""A purchase negotiated with suppliers over HTTP in seven nodes: the main example of Outlast.

In a checkout the package is `examples.negotiation`; start it with `outlast worker examples.negotiation.workflow`. The
modules, in reading order:

- `purchase` is the input document, `governance` holds its rules, `kraljic` classifies it;
- `placing` looks the classification up in a `cache` by exact key, or by text with `similar`;
- `suppliers` has the activities that call suppliers, `inbox` receives their bids;
- `course` declares the workflow, `routes` has its four negotiation nodes, `workflow` the other nodes;
- `rounds` decides between two rounds; `negotiators` asks agents, and `limits` admits what they propose;
- `judging` and `scoring` rank the bids and explain the ranking, `advice` adds recommendations to the order;
- `summary` and `report` describe the result as text, `report_page` and `charts` as an HTML page;
- `market` simulates suppliers, `record` counts the requests they received, `samples` has inputs to try;
- `demo` runs all of it for `outlast demo`.
"""
