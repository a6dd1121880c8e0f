"""A right answer to the task `template`."""

import re


def render_template(template, context):
    def block(match):
        return match[2] if context.get(match[1]) else ""

    def value(match):
        return str(context[match[1]]) if match[1] in context else match[0]

    kept = re.sub(r"\{%\s*if\s+(\w+)\s*%\}(.*?)\{%\s*endif\s*%\}", block, template, flags=re.DOTALL)
    return re.sub(r"\{\{\s*(\w+)\s*\}\}", value, kept)
