"""The command line: one file per command, each imported when it is called."""

from __future__ import annotations

import io
import os
import sys


def main() -> None:
    """`longtalk`: errors of ours are one line on standard error, without a traceback."""
    import click

    from longtalk.cli.commands import commands
    from longtalk.cli.out import tell
    from longtalk.errors import LongtalkError

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            commands.main(prog_name="longtalk", standalone_mode=False)
        finally:
            # While an error of it can still be told.
            sys.stdout.flush()
    except LongtalkError as problem:
        tell(problem)
        raise SystemExit(1) from None
    except click.ClickException as problem:
        problem.show()
        raise SystemExit(problem.exit_code) from None
    except (click.Abort, KeyboardInterrupt):
        raise SystemExit(130) from None
    except BrokenPipeError:
        # Nobody reads any more; what is still in the buffer must not fail once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        raise SystemExit(1) from None
    except OSError as problem:
        tell(problem)
        raise SystemExit(1) from None
