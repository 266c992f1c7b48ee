"""`python -m longtalk` is the command `longtalk`, also where that is not on the path."""

from longtalk.cli import main

if __name__ == "__main__":
    main()
