"""What an answer means: from the text a model wrote to a short key that equal answers share.

In reading order:
  characters  Unicode and typographic spellings -> plain LaTeX
  stated      what follows "the answer is" -> the value in it; leading finds where prose continues after a number
  prose       boxes, dollars and words around the mathematics
  tokens      LaTeX -> tokens -> LaTeX
  spelling    rewrites of tokens that don't change the meaning, to the canonical form;
              names (x = …), numbers, figures (two), measures (units and nouns after a
              value, read by phrases, from the table in units) and words are its parts
  tree        the nodes of a parsed answer
  grammar     tokens -> tree: what stands between atoms; atoms and commands below it
  exact       numbers as sums of rationals, square roots, powers of pi and of i;
              arithmetic evaluates trees to them
  piecewise   parts with kinks (absolute values, roots of squares) as unknowns of their own
  numeric     the other closed expressions, by mpmath at high precision
  decimals    long decimals that are the rounding of a simple number
  keys        a number -> its key
  scalars     an expression -> its key: exact where possible, else its value at fixed points
  relations   equations and inequalities -> their keys, solved where they are linear (see linear)
              or quadratic; sets of numbers as spans
  quantities  values with units in the tree, converted
  meaning     any tree (tuple, set, interval, relation, matrix …) -> its key

Nothing here evaluates user text as code, starts a process or reads a clock.
"""
