"""The engine on PyTorch: every distinct prefix of tokens is run once.

The way of a batch: `engine` sorts its sequences; `passes` finds in the `tree` what is known of each and lists what must
be run; `segments` says which tokens each of those attends to, `attention` computes it; `readers` and `heads` turn
hidden states into margins. `plain` runs each sequence alone, and `self_test` compares the two before a model is served.
"""
