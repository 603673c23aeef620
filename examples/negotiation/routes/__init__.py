"""The four ways to negotiate, one node each: spot, auction, bottleneck, strategic."""
