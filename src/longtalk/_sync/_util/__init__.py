"""What differs between sync and async code, for sync code."""
