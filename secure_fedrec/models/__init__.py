"""Models that algorithms train. Import the modules: some need torch, and nothing here does."""
