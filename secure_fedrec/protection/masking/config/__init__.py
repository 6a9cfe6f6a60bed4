"""What the parties of a masked sum agree on before its first message, and how it is chosen."""
