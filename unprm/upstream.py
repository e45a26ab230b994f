"""llama.cpp's server with a base by name: OpenAI's API with log-probabilities, on a processor alone.

unprm upstream qwen2.5-coder-1.5b-instruct --port 8001

Requests that say nothing else are sampled from the model's own distribution, without llama.cpp's cuts of it.
"""

import logging
import os
import signal
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from unprm.checkpoints import bases
from unprm.errors import ModelInvalid

app = typer.Typer(pretty_exceptions_show_locals=False)
console = Console(stderr=True)


@app.command()
def upstream(
    model: Annotated[str, typer.Argument(help=f"One of {', '.join(bases.BASES)}.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0: any free one.")] = 8001,
    slots: Annotated[int, typer.Option(min=1, help="Completions written at the same time.")] = 4,
    threads: Annotated[int, typer.Option(min=1, help="Threads, at most the machine's idle cores.")] = 1,
    tokens: Annotated[int, typer.Option(min=1, help="Maximum tokens of a prompt and its completion.")] = 2048,
) -> None:
    """Serve a language model to the gateway, to samplers over HTTP and to the judge, by llama.cpp."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    if model not in bases.BASES:
        raise typer.BadParameter(f"expected one of {', '.join(bases.BASES)}", param_hint="MODEL")
    import xllamacpp  # an optional dependency

    file = str(bases.file(bases.BASES[model]))
    serve(configure(xllamacpp.CommonParams(), model, file, port, slots, threads, tokens))


def configure(params: Any, model: str, file: str, port: int, slots: int, threads: int, tokens: int) -> Any:
    """Sets llama.cpp's parameters; returns them. Arguments as those of `upstream`."""
    params.model.path, params.model_alias = file, {model}
    params.hostnames, params.port = ["127.0.0.1"], port
    params.n_parallel, params.n_ctx = slots, slots * tokens
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.sampling.top_k, params.sampling.top_p, params.sampling.min_p = 0, 1.0, 0.0
    params.cache_ram_mib = 0  # prompts are short: what is in the slots is enough
    params.ui, params.verbosity = False, 1
    return params


def serve(params: Any) -> None:
    """Serves until it is interrupted or terminated; says at which address."""
    import xllamacpp

    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))  # also in llama.cpp's threads
    server = xllamacpp.Server(params)
    (name,) = params.model_alias
    typer.echo(f"{name} at {server.listening_address}/v1")
    signal.sigwait((signal.SIGINT, signal.SIGTERM))
    os._exit(0)  # freed in the ordinary way, the server first waits for the answers that it is writing


def main() -> None:
    """Runs the command line; a `ModelInvalid` or `OSError` is printed as one red line, with exit code 1."""
    try:
        app()
    except (ModelInvalid, OSError) as error:
        console.print(f"[red]{escape(str(error))}[/red]", highlight=False, soft_wrap=True)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
