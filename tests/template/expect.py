#!/usr/bin/env python3
"""What Python's Jinja makes of chat templates. See README.md.

Needs jinja2. Prints JSON: template -> dialogue -> the text, or null where the template refuses.
"""
import argparse
import datetime
import json
import pathlib

import jinja2
import jinja2.ext
import jinja2.sandbox

HERE = pathlib.Path(__file__).resolve().parent
NOW = datetime.datetime(2026, 1, 2, 3, 4, 5)
TOKENS = {"bos_token": "<bos>", "eos_token": "<eos>"}
NAMES = ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"]


class Generation(jinja2.ext.Extension):
    """{% generation %} marks what a model is trained on; its block is a scope and prints as it stands."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("as_it_stands")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def as_it_stands(self, caller):
        return caller()


def environment():
    """Jinja as chat templates are written for it."""
    result = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(
            value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    result.filters["tojson"] = tojson
    result.globals["raise_exception"] = raise_exception
    result.globals["strftime_now"] = NOW.strftime
    return result


def expectation(template, tokens, dialogue):
    """The text of one dialogue, or None."""
    given = dict(tokens)
    given.update(dialogue.get("variables", {}))
    try:
        return template.render(
            given,
            messages=dialogue["messages"],
            tools=dialogue.get("tools"),
            documents=None,
            add_generation_prompt=dialogue.get("add_generation_prompt", True),
        )
    except (jinja2.exceptions.TemplateError, TypeError, AttributeError):
        return None


def expectations(source, tokens, dialogues):
    """All dialogues of one template."""
    template = environment().from_string(source)
    return {name: expectation(template, tokens, dialogue) for name, dialogue in dialogues.items()}


def of_model(folder):
    """Template and special tokens of a model's folder."""
    configuration = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    beside = folder / "chat_template.jinja"
    source = beside.read_text(encoding="utf-8") if beside.exists() else configuration["chat_template"]
    if isinstance(source, list):
        source = next(entry["template"] for entry in source if entry["name"] == "default")
    tokens = {}
    for name in NAMES:
        token = configuration.get(name)
        token = token.get("content") if isinstance(token, dict) else token
        if isinstance(token, str):
            tokens[name] = token
    return source, tokens


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", type=pathlib.Path, help="folders of models instead of templates/")
    arguments = parser.parse_args()
    dialogues = json.loads((HERE / "dialogues.json").read_text(encoding="utf-8"))
    result = {}
    if arguments.models:
        for folder in arguments.models:
            result[str(folder)] = expectations(*of_model(folder), dialogues)
    else:
        for path in sorted((HERE / "templates").glob("*.jinja")):
            # Bytes, so that ends of lines stay what they are.
            source = path.read_bytes().decode("utf-8")
            result[path.stem] = expectations(source, TOKENS, dialogues)
    print(json.dumps(result, ensure_ascii=False, indent=1))


if __name__ == "__main__":
    main()
