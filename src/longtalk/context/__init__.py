"""What is sent, and why: planning, epochs, composing a request, its manifest and costs."""
