"""One file per vote: its settings, its rule, its words, and the settings worth trying."""
