"""Studies of the papers' tables, trained with an engine or without one."""
