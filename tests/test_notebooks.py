"""The notebooks of examples/ run from top to bottom, with smaller budgets, and are kept without outputs.

They run one after the other in one kernel, its names forgotten in between: to start one takes longer.
"""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from texts import TINY as TEXTS
from texts import write_texts
from tiny import BOARDS, ROWS, SIZES, SMALL, without_hidden

EXAMPLES = Path(__file__).parent.parent / "examples"
NAMES = ("control", "trading", "portfolio", "packing", "language")
PACKING = (*without_hidden(SMALL), *SIZES["spo"], *BOARDS["BinPack-v2"], "training.max_steps=64")
SETTINGS = {
    "control": [*SMALL, *SIZES["ppo"], "trials=2"],
    "trading": [*SMALL, *SIZES["ppo"], ROWS],
    "portfolio": [*SMALL, *SIZES["ppo"], ROWS],
    "packing": list(PACKING),
    "language": TEXTS | {"evaluation.judge": None},
}


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """Every notebook's cells, with what they put out."""
    folder = tmp_path_factory.mktemp("notebooks")
    write_texts(folder)
    whole = nbformat.v4.new_notebook()
    for name in NAMES:
        whole.cells.append(nbformat.v4.new_code_cell("%reset -f"))
        for cell in read(name).cells:
            if "parameters" in cell.metadata.get("tags", []):
                cell.source = f"settings = {SETTINGS[name]!r}"
            cell.metadata["of"] = name
            whole.cells.append(cell)
    client = NotebookClient(whole, timeout=300, resources={"metadata": {"path": str(folder)}})
    client.execute()
    return {name: [c for c in whole.cells if c.metadata.get("of") == name] for name in NAMES}


def read(name):
    return nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4)


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs_and_shows_its_results(executed, name):
    outputs = [output for cell in executed[name] for output in cell.get("outputs", [])]
    pages = [o["data"]["text/html"] for o in outputs if "text/html" in o.get("data", {})]
    assert any("<table>" in page and "in logs/" in page for page in pages)
    said = "".join(output["text"] for output in outputs if output["output_type"] == "stream")
    assert not [o for o in outputs if o.get("name") == "stderr"], "red in a notebook"
    assert not re.search(r"[\r\x1b]", said)  # a saved notebook would have a line for every chunk
    plain = [o["data"]["text/plain"] for o in outputs if o["output_type"] == "display_data"]
    lines = [text for text in plain if re.match(r"\w+ +\d+ % ", text)]
    assert len(lines) == 1 and " 100 % " in lines[0], "one line, of how far it came"


def test_a_summary_is_a_table_of_trials_interval_and_baselines(executed):
    def shown(name):
        outputs = [output for cell in executed[name] for output in cell.get("outputs", [])]
        pages = [o["data"]["text/html"] for o in outputs if "text/html" in o.get("data", {})]
        return pages[-1]

    control, trading, language = map(shown, ("control", "trading", "language"))
    outputs = [output for cell in executed["portfolio"] for output in cell.get("outputs", [])]
    weights = [o["data"]["text/plain"] for o in outputs if o["output_type"] == "execute_result"]
    assert "'asset_5': " in weights[-1]
    assert control.count("<tr>") == 1 + 2 + 1 + 2  # two heads, two trials, the figure and chance
    assert "[50 % interval]" in control and ">random<" in control
    assert ">buy_and_hold<" in trading and ">momentum<" in trading
    assert ">before<" in language and "ppo/reward" in language


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_outputs(path):
    cells = nbformat.read(path, as_version=4).cells
    assert path.stem in NAMES
    assert sum("parameters" in cell.metadata.get("tags", []) for cell in cells) == 1
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
