"""Web UI: pages for approvers, operators and developers, over the same `Operations` and models as the HTTP routes."""
