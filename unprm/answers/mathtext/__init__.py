"""What an answer means: from the text a model wrote to a short key that equal answers share.

From a text to its canonical form (`unprm.answers.canonical`): notations, prose, tokens, numbers, measures. From that to
a tree: grammar. From a tree to its key: keys, which has expressions from scalars, relations and sets of numbers from
relations, units from quantities. Nothing here evaluates user text as code, starts a process or reads a clock.
"""
