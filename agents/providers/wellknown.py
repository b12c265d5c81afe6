"""The vendors whose key has a usual name: which variable that is, and the one model that `auto` takes of each.

The order here is the order in which `auto` looks. Reading the variables is the business of whoever loads the config,
and so is the choice; a vendor of the Chat wire says both facts in its own record.
"""

from dataclasses import dataclass
from urllib.parse import urlsplit

from agents.providers.chat.vendors import VENDORS, Vendor
from agents.providers.models import known_names


@dataclass(frozen=True, kw_only=True, slots=True)
class WellKnown:
    """`names` are the names of providers that mean this vendor; the first is the one that `auto` says."""

    names: tuple[str, ...]
    variables: tuple[str, ...]
    """Where the key usually is: the first that is set counts."""
    hosts: tuple[str, ...] = ()
    """Where the vendor itself answers, subdomains included; any other address may offer any model."""
    default_model: str = ""
    """Without the provider; empty where no model is the obvious one, and `auto` passes the vendor over."""

    def model_of(self, name: str) -> str:
        """The default model, under one of the vendor's names."""
        return f"{name}/{self.default_model}"


def _of(vendor: Vendor) -> WellKnown:
    return WellKnown(
        names=vendor.names, variables=(vendor.key_env,), hosts=vendor.hosts, default_model=vendor.default_model
    )


WELL_KNOWN: tuple[WellKnown, ...] = (
    WellKnown(
        names=("anthropic",),
        variables=("ANTHROPIC_API_KEY",),
        hosts=("api.anthropic.com",),
        default_model="claude-sonnet-4-6",
    ),
    _of(VENDORS["openai"]),
    WellKnown(
        names=("google", "gemini"),
        variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        hosts=("generativelanguage.googleapis.com",),
        default_model="gemini-3-flash",
    ),
    WellKnown(
        names=("mistral",),
        variables=("MISTRAL_API_KEY",),
        hosts=("api.mistral.ai",),
        default_model="mistral-large-latest",
    ),
    *(_of(vendor) for vendor in VENDORS.values() if vendor.key_env and vendor.name != "openai"),
)


def well_known(name: str) -> WellKnown | None:
    """The vendor that a provider of this name stands for."""
    return next((vendor for vendor in WELL_KNOWN if name in vendor.names), None)


def known_models() -> list[str]:
    """Names of models that a person may have meant."""
    return [*(vendor.default_model for vendor in WELL_KNOWN if vendor.default_model), *known_names()]


def serves_own_models(name: str, base_url: str | None) -> bool:
    """Whether a provider is a vendor's own service, whose models `models.yaml` should know: by its address where it has
    one, else by its name. A vendor without a default model has no models of its own."""
    if base_url is None:
        vendor = well_known(name)
    else:
        host = urlsplit(base_url).hostname or ""
        vendor = next((it for it in WELL_KNOWN if any(f".{host}".endswith(f".{own}") for own in it.hosts)), None)
    return vendor is not None and bool(vendor.default_model)
