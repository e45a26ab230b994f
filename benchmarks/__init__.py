"""Benchmarks: each command prints ratios against named baselines, measured in the same run."""
