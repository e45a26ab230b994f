"""Process reward models: score the steps of candidate solutions, and vote for an answer."""
