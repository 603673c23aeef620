"""Who calls, and what they may do: credentials, roles, and the table of permissions."""

from outlast.service.identity.permissions import Permissions, permissions, permit
from outlast.service.identity.principal import Anonymous, Authenticator, Principal

__all__ = ["Anonymous", "Authenticator", "Permissions", "Principal", "permissions", "permit"]
