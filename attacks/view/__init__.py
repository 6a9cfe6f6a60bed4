"""What an adversary knows: traits, named rows, its own part, who took part when."""
