"""The searches for wrong steps, compared on the same solutions: what each costs, and how true its labels are."""
