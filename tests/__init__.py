"""Tests, in the order of the tree that they test."""
