"""Train one config under several objectives and compare them."""
