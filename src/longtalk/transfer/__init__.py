"""Export, import and copy conversations."""
