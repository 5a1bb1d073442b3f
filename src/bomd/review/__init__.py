"""Room 7: people look at flagged images and decide; given labels stay, decisions stand beside them."""
