"""The routes, by what they are about; every one stands behind the door."""
