"""What is stored: the codec, the head of a session, its rows, and how a state is packed into them."""
