"""Files and modules that travel to workers."""

import sys
from pathlib import Path

from proxima.build import make_importable
from proxima.cluster.luggage import packed, unpacked


def test_files_arrive_where_the_settings_say(tmp_path, monkeypatch):
    driver, worker, elsewhere = (tmp_path / name for name in ("driver", "worker", "elsewhere"))
    for folder in (driver / "data", worker, elsewhere):
        folder.mkdir(parents=True)
    (driver / "data" / "near.csv").write_text("near")
    (elsewhere / "far.csv").write_text("far")
    monkeypatch.chdir(driver)
    far, above = elsewhere / "far.csv", Path("../elsewhere/far.csv")
    settings = {"data": {"path": str(far), "other": str(above), "near": "data/near.csv", "n": 1}}
    luggage = packed(settings, [Path("data/near.csv"), far, above])
    monkeypatch.chdir(worker)
    there = unpacked(luggage, worker, settings)["data"]
    assert Path("data/near.csv").read_text() == "near"
    assert there["near"] == "data/near.csv" and there["n"] == 1
    for moved in (there["path"], there["other"]):
        assert Path(moved).is_relative_to(worker) and Path(moved).read_text() == "far"


def test_modules_travel_where_something_is_named_by_them(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    driver, worker = tmp_path / "driver", tmp_path / "worker"
    driver.mkdir()
    worker.mkdir()
    (driver / "travelling_env.py").write_text("WORD = 'here'\n")
    make_importable(driver)
    assert not any("travelling" in name for name in packed({"env": {"name": "CartPole-v1"}}, []))
    settings = {"env": {"backend": "travelling_env:Env"}}
    luggage = packed(settings, [])
    sys.path.remove(str(driver))
    assert unpacked(luggage, worker, settings) == settings
    import travelling_env

    assert travelling_env.WORD == "here" and Path(travelling_env.__file__).is_relative_to(worker)
