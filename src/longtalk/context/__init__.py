"""What is sent, and why: plan the next request, keep epochs, compose the request, and explain it in a manifest."""
