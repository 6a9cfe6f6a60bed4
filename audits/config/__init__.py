"""Configurations: TOML in, validated settings out, errors that name key, value and choices."""

from audits.config.audit import AuditConfig, load_config, parse_config

__all__ = ["AuditConfig", "load_config", "parse_config"]
