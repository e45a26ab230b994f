"""Models from their options: where their files are, what they hold, and which engine runs them."""
