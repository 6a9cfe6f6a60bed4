"""Studies of the papers: what their tables report, trained with an engine or beside one."""
