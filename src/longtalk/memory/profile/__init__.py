"""The profile of an owner: what all conversations of the owner know about them."""
