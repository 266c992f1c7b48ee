"""Command-line agents (Claude Code, Codex, Gemini CLI) as providers."""
