"""Backup, restore, check and compact."""
