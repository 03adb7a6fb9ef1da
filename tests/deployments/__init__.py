"""The files of deploy/, read as their consumers read them."""
