"""The commands that solve problems, one per file; `biloop.cli` puts them on the command line."""
