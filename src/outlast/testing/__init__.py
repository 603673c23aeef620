"""For people who test with Outlast: the exam every store must pass."""
