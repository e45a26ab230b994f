"""Checkpoints on disk: where their files are, and tokenizers, networks and adapters from them."""
