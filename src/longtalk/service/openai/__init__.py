"""OpenAI's surface: Chat Completions, Responses, Conversations and Models, over any provider."""
