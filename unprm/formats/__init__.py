"""PRM families: how a problem and its steps become token ids, and where each step is scored."""
