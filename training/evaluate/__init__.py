"""How good a PRM and its votes are: ProcessBench, best-of-N, and their statistics."""
