"""What an adversary knows: traits, named rows, its own part, and the participants of rounds."""
