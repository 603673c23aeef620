"""Is the world told of everything, once accepted never again, in order, and of nothing else?"""
