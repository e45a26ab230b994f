"""The commands of `python -m training`, by subject; each imports what it needs when it runs."""
