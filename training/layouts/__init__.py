"""The layouts in which step labels are published: one door for all of them, and the way between them."""
