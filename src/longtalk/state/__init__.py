"""Encode transcripts as opaque bytes (states), encrypt those (seal), and move older entries out of them (shed)."""
