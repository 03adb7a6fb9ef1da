"""The pages of docs/ and what they show."""
