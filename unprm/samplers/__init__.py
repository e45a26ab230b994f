"""Models that write solutions: prompts' token ids in, completions with token ids and log-probabilities out."""
