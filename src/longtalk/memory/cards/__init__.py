"""Memory cards: hidden notes that the model adds to its answers and that update the brief."""
