"""The service's own surface, `/longtalk/v1`: all of the library that OpenAI's API has no words for."""
