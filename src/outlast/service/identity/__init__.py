"""Authentication and authorization: credentials, roles, and the table of permissions."""

from outlast.runtime.settings import AuthSettings
from outlast.service.identity.credentials import Credentials, authenticator
from outlast.service.identity.listen import SameOriginMiddleware, check_bind, proxy_options
from outlast.service.identity.lockout import shared_file
from outlast.service.identity.permissions import (
    Anonymous,
    Authenticator,
    Permissions,
    Principal,
    is_permitted,
    permissions,
    permit,
)
from outlast.service.identity.static_tokens import new_token

__all__ = [
    "Anonymous",
    "AuthSettings",
    "Authenticator",
    "Credentials",
    "Permissions",
    "Principal",
    "SameOriginMiddleware",
    "authenticator",
    "check_bind",
    "is_permitted",
    "new_token",
    "permissions",
    "permit",
    "proxy_options",
    "shared_file",
]
