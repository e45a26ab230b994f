"""The engine on PyTorch runs every distinct prefix once: `engine` sorts sequences, `passes` looks them up in the `tree`
and lists what must run, `segments` and `attention` compute it, `readers` and `heads` turn hidden states into margins.
`self_test` compares the engine with `plain` passes before a model is served."""
