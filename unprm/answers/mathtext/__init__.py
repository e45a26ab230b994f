"""What an answer means: from its canonical form to a tree (`grammar`), and from that to a short key that equal answers
share (`keys`). Nothing here evaluates user text as code, starts a process or reads a clock."""
