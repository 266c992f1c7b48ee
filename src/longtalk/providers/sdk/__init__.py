"""SDK clients that send Longtalk's requests: those of OpenAI and Anthropic, also for other clouds."""
