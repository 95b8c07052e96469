"""F4: the disk is full, and then it is not."""

import os
import subprocess

import pytest

TEXT = "x" * 20_000
MEGABYTE = 1 << 20


class Injected:
    """A disk that a worker finds full when it is told so: half of a write happens, then none."""

    def __init__(self, path):
        self.path = path

    def fill(self, worker):
        worker.tell({"space": 0})

    def free(self, worker):
        worker.tell({"space": 1})


class SmallDisk:
    """A disk of its own, full of ballast."""

    def __init__(self, path):
        self.path = path
        self._ballast = path / "ballast"

    def fill(self, worker):
        with self._ballast.open("wb", buffering=0) as ballast:
            while ballast.write(b"x" * 4096) == 4096 and os.statvfs(self.path).f_bfree:
                pass
            ballast.truncate(ballast.tell() - 200_000)  # room for some turns

    def free(self, worker):
        self._ballast.unlink()


@pytest.fixture(params=["injected", "small disk"])
def disk(request, tmp_path):
    """Mounting takes rights; without them the injected fault stands in, and the figures say so."""
    if request.param == "injected":
        yield Injected(tmp_path)
        return
    path = tmp_path / "disk"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={3 * MEGABYTE}", "midturn-test", path]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        yield Injected(tmp_path)
        return
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)


@pytest.mark.parametrize("store", ["file", "sqlite"])
def test_a_full_disk_loses_nothing_that_was_acknowledged(workers, disk, store, read, figures):
    url = {"file": f"file://{disk.path}/store", "sqlite": f"sqlite:///{disk.path}/store.db"}[store]
    request = {"url": url, "session": "case", "lease": 3600.0, "listens": True}
    worker = workers(**request)
    worker.wait_for("found")
    done, refused, number = [], 0, 0

    def attempt():
        nonlocal refused, number
        number += 1
        worker.tell({"run": f"{number} {TEXT}", "key": f"{number}"})
        while (said := worker.hear())["is"] not in ("done", "error"):
            pass
        if said["is"] == "done":
            done.append(said)
        else:
            assert said["kind"] == "StoreFull", said["text"]
            refused += 1

    for _ in range(3):
        attempt()
    assert len(done) == 3
    disk.fill(worker)
    while refused < 4 and number < 100:
        attempt()
    assert refused == 4, "the disk was to be full"
    for turns, _ in [read(url, "case")]:
        assert [turn.number for turn in turns if turn.status == "done"] == [said["turn"] for said in done]
    worker.kill()
    assert [turn.key for turn in read(url, "case")[0] if turn.status == "done"] == [
        said["step"]["key"] for said in done
    ]

    worker = workers(**request)
    worker.wait_for("found")
    if isinstance(disk, Injected):
        disk.fill(worker)
    attempt()
    disk.free(worker)
    for _ in range(3):
        before = refused
        attempt()
        assert refused == before, "there was space again"
    worker.finish()
    turns, state = read(url, "case")
    assert [turn.number for turn in turns] == list(range(1, len(turns) + 1))
    assert {turn.status for turn in turns} == {"done"}
    texts = {turn.key: [message["content"] for message in turn.messages] for turn in turns}
    for said in done:
        assert texts[said["step"]["key"]] == said["texts"]
    remembered = [message["content"] for message in state["llm_context"]["messages"]]
    assert remembered == [text for turn in turns for text in texts[turn.key]]
    figures(store=store, means=type(disk).__name__, acknowledged=len(done), refused=refused, turns=len(turns))
