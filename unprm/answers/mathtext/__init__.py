"""What an answer means: from the text a model wrote to a short key that equal answers share.

In reading order:

spelling, from a text to its canonical form
  characters  Unicode and typographic spellings -> plain LaTeX
  prose       boxes, dollars and words around the mathematics
  tokens      LaTeX -> tokens -> LaTeX
  spelling    rewrites of tokens that don't change the meaning
  notations   numbers of code, trade and other languages
  names       the name of a value: x = …
  numbers     literal numbers, also in words
  measures    units and nouns after a value, read by phrases, from the table in units
  words       English words beside a number
grammar, from the canonical form to a tree
  tree        the nodes
  grammar     what stands between atoms; atoms and commands are below it
values, from an expression to its key
  values      rationals and balls, and the keys of numbers
  evaluation  closed expressions -> values
  decimals    long decimals that are the rounding of a simple number
  scalars     any expression -> its key: its value, or its values at fixed points
relations and the rest, from any tree to its key
  quantities  values with units, converted
  relations   equations and inequalities, solved where they are linear (see linear) or quadratic, with sets of
              numbers as spans
  keys        tuples, sets, intervals, relations, matrices …

Nothing here evaluates user text as code, starts a process or reads a clock.
"""
