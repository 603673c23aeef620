"""What commands speak to: the same words whether the store is here or a service stands in front of it."""
