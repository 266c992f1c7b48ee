"""The command-line interface.

`command_flags`, `branch_flags`, `profile_flags`, `talk_flags`, `transfer_flags` and `service_flags` declare all
commands with their options and help. Each command is implemented in a separate module, which is imported when the
command runs.
"""

from __future__ import annotations

import io
import sys


def main() -> None:
    """Run the `longtalk` command. Errors are printed as one line on standard error, without a traceback."""
    try:
        import click
    except ImportError:
        print("longtalk: the command line needs an extra. Run: pip install 'longtalk[cli]'", file=sys.stderr)
        raise SystemExit(2) from None

    from longtalk.cli.output import exit_without_reader, print_error
    from longtalk.cli.service_flags import commands
    from longtalk.errors import LongtalkError

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            commands.main(prog_name="longtalk", standalone_mode=False)
        finally:
            # Flush here, where an error can still be reported.
            sys.stdout.flush()
    except LongtalkError as problem:
        print_error(problem)
        raise SystemExit(1) from None
    except click.ClickException as problem:
        problem.show()
        raise SystemExit(problem.exit_code) from None
    except (click.Abort, KeyboardInterrupt):
        raise SystemExit(130) from None
    except BrokenPipeError:
        exit_without_reader()
    except OSError as problem:
        print_error(problem)
        raise SystemExit(1) from None
