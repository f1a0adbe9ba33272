"""The command `biloop`: one file per command."""
