"""Answers: found in a text, read as mathematics, and compared."""
