"""The vendors whose key has a usual name: which variable that is, and the one model that `auto` takes of each.

The order here is the order in which `auto` looks. Reading the variables is the business of whoever loads the config,
and so is the choice; a vendor of the Chat wire says both facts in its own record.
"""

from dataclasses import dataclass

from agents.providers.chat.vendors import VENDORS, Vendor


@dataclass(frozen=True, kw_only=True, slots=True)
class WellKnown:
    """`names` are the names of providers that mean this vendor; the first is the one that `auto` says."""

    names: tuple[str, ...]
    variables: tuple[str, ...]
    """Where the key usually is: the first that is set counts."""
    default_model: str = ""
    """Without the provider; empty where no model is the obvious one, and `auto` passes the vendor over."""

    def model_of(self, name: str) -> str:
        """The default model, under one of the vendor's names."""
        return f"{name}/{self.default_model}"


def _of(vendor: Vendor) -> WellKnown:
    return WellKnown(names=vendor.names, variables=(vendor.key_env,), default_model=vendor.default_model)


WELL_KNOWN: tuple[WellKnown, ...] = (
    WellKnown(names=("anthropic",), variables=("ANTHROPIC_API_KEY",), default_model="claude-sonnet-4-6"),
    _of(VENDORS["openai"]),
    WellKnown(
        names=("google", "gemini"), variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"), default_model="gemini-3-flash"
    ),
    WellKnown(names=("mistral",), variables=("MISTRAL_API_KEY",), default_model="mistral-large-latest"),
    *(_of(vendor) for vendor in VENDORS.values() if vendor.key_env and vendor.name != "openai"),
)


def well_known(name: str) -> WellKnown | None:
    """The vendor that a provider of this name stands for."""
    return next((vendor for vendor in WELL_KNOWN if name in vendor.names), None)
