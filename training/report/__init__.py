"""One page with the figures and tables of what annotation and evaluation wrote."""
