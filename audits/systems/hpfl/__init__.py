"""HPFL as an audit runs it: settings, data of organisations."""
