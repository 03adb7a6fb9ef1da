"""What is written for people: texts, tables, the terminal, HTML pages."""
