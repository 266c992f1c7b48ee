"""States: transcripts encoded as opaque bytes, sealed with encryption, and reduced to what later turns can use."""
