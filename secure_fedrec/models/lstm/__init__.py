"""A character LSTM: the model and its compiled loops."""
