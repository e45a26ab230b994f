"""What is measured once and published: pools of a real generator. In the checkout alone, no part of the package."""
