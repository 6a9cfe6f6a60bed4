"""Rating recovery from one upload."""
