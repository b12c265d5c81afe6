"""Public addresses, and the IPv4 addresses that hide in others."""

import ipaddress
from collections.abc import Iterable
from typing import TypeAlias

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_NETWORKS = "192.0.0.0/24 192.88.99.0/24 168.63.129.16/32 fec0::/10 5f00::/16 3fff::/20 64:ff9b:1::/48"
_DENIED = tuple(map(ipaddress.ip_network, _NETWORKS.split()))
"""Networks that some Python calls global: relays, protocol assignments, a cloud's metadata, the former site-local."""
_EMBEDDED = tuple(
    (ipaddress.IPv6Network(network), shift, mask)
    for network, shift, mask in (
        ("::/96", 0, 0),  # IPv4-compatible
        ("::ffff:0:0/96", 0, 0),  # mapped
        ("::ffff:0:0:0/96", 0, 0),  # SIIT
        ("64:ff9b::/96", 0, 0),  # NAT64
        ("2002::/16", 80, 0),  # 6to4
        ("2001::/32", 64, 0),  # Teredo: its server
        ("2001::/32", 0, 0xFFFFFFFF),  # and its client, inverted
    )
)
_ISATAP = (0x00005EFE, 0x02005EFE)


def is_public(address: Address) -> bool:
    """True if it is public, and also every IPv4 address that hides in it."""
    if not address.is_global or address.is_multicast or address.is_reserved or address.is_unspecified:
        return False
    return not any(address in network for network in _DENIED) and all(map(is_public, embedded(address)))


def embedded(address: Address) -> Iterable[ipaddress.IPv4Address]:
    """The IPv4 addresses that an IPv6 address carries."""
    if isinstance(address, ipaddress.IPv6Address):
        number = int(address)
        for network, shift, mask in _EMBEDDED:
            if address in network:
                yield ipaddress.IPv4Address(((number >> shift) & 0xFFFFFFFF) ^ mask)
        if (number >> 32) & 0xFFFFFFFF in _ISATAP:
            yield ipaddress.IPv4Address(number & 0xFFFFFFFF)
