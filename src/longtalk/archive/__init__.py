"""Read and manage stored conversations without a model: lists, search, history, statistics, redaction, deletion."""
