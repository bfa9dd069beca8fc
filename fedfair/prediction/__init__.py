"""A saved model in use: raw records in, predictions out, by the words of the model's own file. No public names."""
