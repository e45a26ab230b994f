"""Votes: ballots in, elected answers out."""
