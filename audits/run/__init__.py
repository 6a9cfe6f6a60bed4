"""An audit's run: built from a configuration, trained, recorded, attacked."""
