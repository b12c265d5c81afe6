"""The gateway's own messages to owners: a notice with its buttons."""

from gateway.approvals.notices import buttons, notice_json
from gateway.commands.command import CommandContext, Reply


async def tell(context: CommandContext) -> Reply:
    """Buttons where the channel has them; elsewhere the line that does the same."""
    notice = notice_json.validate_json(context.arguments)
    text, channel = context.say(notice.en, notice.zh), context.setup.channel(context.message)
    if channel is not None and channel.capabilities.buttons:
        return Reply(text=text, buttons=buttons(notice.choices, zh=context.language == "zh"))
    return Reply(text=f"{text} `{notice.typed}`" if notice.typed else text)
