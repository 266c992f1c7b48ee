"""Run the `longtalk` command as `python -m longtalk`, for example if the command is not on the PATH."""

from longtalk.cli import main

if __name__ == "__main__":
    main()
