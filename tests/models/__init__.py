"""Protocol models, checked by Spin."""
