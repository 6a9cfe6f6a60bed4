"""Means of flat vectors under masks or noise, for loops that are not the engine's."""
