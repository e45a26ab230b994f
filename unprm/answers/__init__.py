"""Answers: found in a text, brought into one form, and told apart as mathematics."""
