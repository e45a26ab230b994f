"""The studies of docs/lab, and the making of the embedded model. In the checkout alone, no part of the package."""
