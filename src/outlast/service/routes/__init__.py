"""Routes of the service, grouped by resource."""
