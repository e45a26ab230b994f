"""Health check of the images: exit status 0 if the server in this container takes work."""

import os
import ssl
import sys
import urllib.request

secure = "UNPRM_SSL_CERTFILE" in os.environ
port = os.environ.get("UNPRM_PORT", "")
if not port.isdecimal():  # not set, or an address that Kubernetes tells of a Service called unprm
    port = "8000"
address = f"{'https' if secure else 'http'}://127.0.0.1:{port}/readyz"
# the certificate is for the name by which others reach the server
context = ssl._create_unverified_context() if secure else None
try:
    urllib.request.urlopen(address, timeout=4, context=context)
except OSError as error:
    sys.exit(f"{address}: {error}")
