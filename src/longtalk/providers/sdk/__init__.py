"""Send requests through the SDK clients of OpenAI and Anthropic, including those for Azure, Bedrock and Vertex."""
