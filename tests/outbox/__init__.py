"""Is every event delivered in order, and not again once accepted, and nothing else?"""
