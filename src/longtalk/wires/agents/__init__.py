"""The grammars of agent CLIs: `wire.py` is the shared part, `cli.py` defines what each program must provide."""
