"""The HTTP contract: requests and responses, shared by the server and its clients."""

from unprm.wire.models import *
from unprm.wire.requests import *
from unprm.wire.responses import *
from unprm.wire.types import *
