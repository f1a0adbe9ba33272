"""The command `biloop`: arguments in, calls out.

It exits 0 when all is well, 2 on bad input, 1 when a run failed; an error is one sentence on
stderr, with a traceback before it if --debug is given. `main` alone decides this, for every
command: a command raises what the library raises.
"""

import io
import sys
import traceback
from typing import Annotated, cast

import biloop
from biloop.loops.results import RunFailed

try:
    import typer

    from biloop.cli import compare, plot, problems, reproduce, solve, theory
except ModuleNotFoundError as error:
    if error.name not in {"typer", "rich", "click"}:
        raise
    print(
        "biloop: the command line needs typer and rich: pip install 'biloop[cli]'", file=sys.stderr
    )
    raise SystemExit(2) from None

FAILED, BAD_INPUT = 1, 2

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"biloop {biloop.__version__}")
        raise typer.Exit


@app.callback(epilog="Example: biloop compare --help")
def _biloop(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Print a traceback before the sentence of an error.")
    ] = False,
) -> None:
    """Bilevel optimization with loops of any length, and what they cost."""


app.command(epilog=compare.EXAMPLE)(compare.compare)
app.command(epilog=solve.EXAMPLE)(solve.solve)
app.command(epilog=plot.EXAMPLE)(plot.plot)
app.command(epilog=theory.EXAMPLE)(theory.theory)
app.command(epilog=reproduce.EXAMPLE)(reproduce.reproduce)
app.command(epilog=problems.EXAMPLE)(problems.problems)


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without Greek gets question marks
    given = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in given  # wherever it stands: it is added to a command that has failed
    given = [each for each in given if each != "--debug"] or ["--help"]
    try:
        return app(given, prog_name="biloop", standalone_mode=False) or 0
    except Exception as error:
        if debug:
            traceback.print_exc()
        status, sentence = _explain(error)
        print(f"biloop: {' '.join(sentence.split())}", file=sys.stderr)
        return status


def _explain(error: Exception) -> tuple[int, str]:
    """The exit status and the sentence of an error."""
    if isinstance(error, typer.Abort):
        return FAILED, str(error) or "interrupted"
    if isinstance(error, _USAGE):
        return BAD_INPUT, error.format_message()
    if isinstance(error, (ValueError, TypeError, ImportError, FileNotFoundError)):
        return BAD_INPUT, str(error)
    if isinstance(error, RunFailed):
        return FAILED, str(error)
    return FAILED, f"{type(error).__name__}: {error} (--debug shows where)"


# What typer raises for arguments that it cannot read. It has no public name in every version.
_USAGE = cast(type[typer.BadParameter], typer.BadParameter.__bases__[0])
