"""The command line: arguments, settings, output, and one module per command."""
