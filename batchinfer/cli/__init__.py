"""The command line: one module a command, progress views, exit codes; imports lazily."""
