"""Work with stored conversations without a model: list, search, history, statistics, redaction, deletion."""
