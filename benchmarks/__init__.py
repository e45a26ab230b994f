"""What is claimed about speed: each command prints a ratio against a named baseline, measured in the same run."""
