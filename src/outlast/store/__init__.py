"""Where rows are kept. A store knows keys, versions and order; it knows no status and no verb."""
