"""The command line: one file per command, each imported when it is called."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """`longtalk`: errors of ours are one line on standard error, without a traceback."""
    import click

    from longtalk.cli.commands import commands
    from longtalk.errors import LongtalkError

    try:
        commands.main(prog_name="longtalk", standalone_mode=False)
    except LongtalkError as problem:
        print(f"longtalk: {problem}", file=sys.stderr)
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
