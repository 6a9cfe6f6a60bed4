"""What an adversary knows: the protocol, named rows, its own part, who took part when."""
