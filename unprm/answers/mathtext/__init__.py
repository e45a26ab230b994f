"""What an answer means: from the text a model wrote to a short key that equal answers share.

In reading order:

spelling, from a text to its canonical form (`unprm.answers.canonical`)
  notations   Unicode, and numbers of code, trade and other languages -> plain LaTeX
  prose       boxes, dollars, words and names around the mathematics
  tokens      LaTeX -> tokens -> LaTeX
  numbers     literal numbers, also in words
  measures    units and nouns after a value, from the table in units
  words       English words beside a number
grammar, from the canonical form to a tree
  tree        the nodes
  operators   what stands between atoms
  grammar     the atoms and commands
values, from an expression to its key
  values      rationals and balls, and the keys of numbers
  evaluation  closed expressions -> values
  scalars     any expression -> its key: its value, or its values at fixed points
relations and the rest, from any tree to its key
  quantities  values with units, converted
  relations   equations, inequalities and sets of real numbers
  keys        tuples, lists, sets, relations, matrices …

Nothing here evaluates user text as code, starts a process or reads a clock.
"""
