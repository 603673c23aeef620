"""HTTP in front of `Operations`: routes, limits, streams and who may call them."""
