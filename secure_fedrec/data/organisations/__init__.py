"""Organisations, clients with many users each: how they are read, made up and parted."""
