"""The four negotiation nodes: spot, auction, bottleneck, strategic."""
