"""The files of a checkpoint: damaged, crafted, linked elsewhere, left behind, or shared."""

import os
import pickle
import resource
import stat

import numpy as np
import pytest

from biloop.run import checkpoint as checkpoints
from biloop.run.files import create

from .npz import read_npz, write_npz
from .test_checkpoint import names, same_bits, solve


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A folder with a checkpoint after 20 steps, 16 of whose rows are in the second file."""
    folder = tmp_path_factory.mktemp("good")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoints, "MANY", 16)
        solve(folder, steps=20, every=4)
    assert names(folder) == [checkpoints.FILE, checkpoints.ROWS]
    return folder


@pytest.fixture
def folder(good, tmp_path):
    """A copy that may be damaged."""
    for name in names(good):
        (tmp_path / name).write_bytes((good / name).read_bytes())
    return tmp_path


def refused(folder, words):
    """Refused in a few words, and left as it is."""
    before = {name: (folder / name).read_bytes() for name in names(folder)}
    with pytest.raises(ValueError, match=words) as caught:
        solve(folder)
    assert {name: (folder / name).read_bytes() for name in names(folder)} == before
    assert len(str(caught.value)) < 600


DAMAGED = r"(damaged|not a checkpoint).* Delete it to start the run anew\.$"


def test_the_good_one_is_taken(folder):
    same_bits(solve(folder, steps=30), solve(None, steps=30))


@pytest.mark.parametrize("share", [0.0, 0.01, 0.1, 0.5, 0.9, 0.99])
def test_a_truncated_checkpoint_is_refused_and_kept(folder, share):
    file = folder / checkpoints.FILE
    content = file.read_bytes()
    file.write_bytes(content[: int(share * len(content))])
    refused(folder, DAMAGED)


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.7])
def test_a_flipped_byte_is_noticed(folder, share):
    file = folder / checkpoints.FILE
    content = bytearray(file.read_bytes())
    content[int(share * len(content))] ^= 0xFF
    file.write_bytes(content)
    refused(folder, "damaged|another run")


@pytest.mark.parametrize("content", [b"hello", pickle.dumps([1]), b"PK\x03\x04" + bytes(100)])
def test_what_is_no_checkpoint_at_all(folder, content):
    (folder / checkpoints.FILE).write_bytes(content)
    refused(folder, DAMAGED)


@pytest.mark.parametrize("damage", ["missing", "truncated", "flipped", "exchanged"])
def test_damaged_rows_are_noticed(folder, damage):
    file = folder / checkpoints.ROWS
    content = bytearray(file.read_bytes())
    if damage == "missing":
        file.unlink()
    elif damage == "truncated":
        file.write_bytes(content[:-1])
    elif damage == "flipped":
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    else:
        file.write_bytes(bytes(len(content)))
    refused(folder, DAMAGED)


def without(name):
    return lambda arrays, meta: (arrays, {n: part for n, part in meta.items() if n != name})


def with_meta(**changes):
    return lambda arrays, meta: (arrays, meta | changes)


def with_array(name, change):
    return lambda arrays, meta: (arrays | {name: change(arrays[name])}, meta)


def with_leaves(change):
    return lambda arrays, meta: (arrays, meta | {"leaves": change(meta["leaves"])})


@pytest.mark.parametrize(
    "change",
    [
        *(without(name) for name in ("fingerprint", "steps", "leaves", "rows", "author")),
        lambda arrays, meta: ({"rows": arrays["rows"]}, meta),
        lambda arrays, meta: ({"leaves": arrays["leaves"]}, meta),
        lambda arrays, meta: (arrays, ["a list"]),
        with_meta(fingerprint=3),
        with_meta(steps="many"),
        with_meta(leaves=None),
        with_meta(leaves=[["float64", [10**12]]]),
        with_meta(rows=[]),
        *(
            with_meta(rows={"count": count, "checksum": 0})
            for count in (-1, 3, 1e30, 10**30, "x", float("inf"))
        ),
        with_leaves(lambda leaves: leaves[:-1]),
        with_leaves(lambda leaves: [*leaves, ["float64", []]]),
        with_leaves(lambda leaves: [["float32", shape] for _, shape in leaves]),
        with_leaves(lambda leaves: [[dtype, [*shape, 1]] for dtype, shape in leaves]),
        with_leaves(lambda leaves: [["nonsense", shape] for _, shape in leaves]),
        with_array("leaves", lambda leaves: leaves[:-1]),
        with_array("leaves", lambda leaves: np.full_like(leaves, 77)),  # an end that there is not
        with_array("leaves", lambda leaves: leaves.astype(float)),
        with_array("rows", lambda rows: rows[["k", "value"]].copy()),
        with_array("rows", lambda rows: rows["k"]),
        with_array("rows", lambda rows: rows.astype([(n, "S8") for n in rows.dtype.names])),
    ],
)
def test_a_crafted_checkpoint_is_refused_in_a_sentence(folder, change):
    file = folder / checkpoints.FILE
    write_npz(file, *change(*read_npz(file)))
    refused(folder, DAMAGED)


def test_a_header_that_promises_more_than_there_is(folder):
    file = folder / checkpoints.FILE
    arrays, _ = read_npz(file)
    shape = f"({arrays['leaves'].size},)"
    content = file.read_bytes()
    huge = content.replace(f"'shape': {shape}, }}".encode(), b"'shape': (9" + b"0" * 14 + b",), }")
    assert huge != content
    file.write_bytes(huge)
    refused(folder, DAMAGED)


def test_what_is_compressed_is_not_unpacked(folder):
    """A small file can unpack to more than there is memory, and we compress nothing."""
    file = folder / checkpoints.FILE
    with np.load(file) as content:
        np.savez_compressed(file, **content)
    refused(folder, "is compressed")


class Trap:
    """What runs code as it is unpickled."""

    def __reduce__(self):
        return os.mkdir, (self.there,)


def test_what_would_run_as_it_is_read_is_not_read(folder, tmp_path_factory):
    trap, file = Trap(), folder / checkpoints.FILE
    trap.there = str(tmp_path_factory.mktemp("trap") / "sprung")
    arrays, meta = read_npz(file)
    write_npz(file, arrays | {"leaves": np.array([trap], object)}, meta)
    refused(folder, DAMAGED)
    assert not os.path.exists(trap.there)


def test_another_format_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "_FORMAT", 0)
    solve(tmp_path, steps=20)
    monkeypatch.undo()
    with pytest.raises(ValueError, match="checkpoint format 0"):
        solve(tmp_path)


def test_another_version_of_jax_is_mentioned(folder):
    file = folder / checkpoints.FILE
    arrays, meta = read_npz(file)
    write_npz(file, arrays, meta | {"jax": "0.1"})
    refused_words = r"another outer step than was passed now \(or the same, as JAX 0\.1 wrote it"
    with pytest.raises(ValueError, match=refused_words):
        solve(folder, outer=0.1)
    assert solve(folder, steps=21).steps == 21


def test_what_a_kill_left_behind_is_removed_and_nothing_else(folder):
    left = [folder / f".{name}.0123456789abcdef.tmp" for name in (checkpoints.FILE, "probe")]
    others = [folder / name for name in (".other.npz.0123456789abcdef.tmp", ".checkpoint.npz.tmp")]
    for path in (*left, *others):
        path.write_bytes(b"x")
    solve(folder, steps=21)
    assert not any(path.exists() for path in left)
    assert all(path.exists() for path in others)


def test_links_are_not_followed(folder, tmp_path_factory):
    victim = tmp_path_factory.mktemp("elsewhere") / "victim"
    victim.write_bytes(b"precious")
    (folder / f".{checkpoints.FILE}.{os.getpid()}.tmp").symlink_to(victim)
    (folder / ".link").symlink_to(victim)
    with pytest.raises(FileExistsError):
        create(folder / ".link")
    solve(folder, steps=30)

    def linked(p):
        (folder / checkpoints.ROWS).unlink()
        (folder / checkpoints.ROWS).symlink_to(victim)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoints, "MANY", 1)
        with pytest.warns(RuntimeWarning, match="was not written"):
            solve(folder, steps=60, callback=linked)
    assert victim.read_bytes() == b"precious"


def test_others_may_read_what_the_user_lets_them(tmp_path):
    before = os.umask(0o022)
    try:
        solve(tmp_path, steps=20)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / checkpoints.FILE).stat().st_mode) == 0o644


@pytest.mark.parametrize("many", [8, 1024])
def test_files_that_are_removed_under_way_are_written_again(tmp_path, monkeypatch, many):
    monkeypatch.setattr(checkpoints, "MANY", many)

    def remove(p):
        if p.k == 20:
            for name in names(tmp_path):
                (tmp_path / name).unlink()

    solve(tmp_path, steps=45, callback=remove)
    same_bits(solve(tmp_path), solve(None))


def test_the_second_of_two_runs_in_one_folder_does_not_save(tmp_path, monkeypatch):
    """Both would append to one file."""
    monkeypatch.setattr(checkpoints, "MANY", 8)
    started = []

    def start_another(p):
        if not started:
            started.append(p.k)
            solve(tmp_path, steps=50)

    with pytest.warns(RuntimeWarning, match="another process saves to"):
        run = solve(tmp_path, steps=60, callback=start_another)
    assert "another process saves to" in run.message
    same_bits(solve(tmp_path), run)


def test_a_full_disk_is_reported_and_loses_nothing(tmp_path, monkeypatch):
    solve(tmp_path, steps=20)
    good = (tmp_path / checkpoints.FILE).read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.warns(RuntimeWarning, match="No space left on device.* The run goes on"):
        run = solve(tmp_path, steps=40)
    assert run.steps == 40
    assert "was not written" in run.message
    assert (tmp_path / checkpoints.FILE).read_bytes() == good
    assert names(tmp_path) == [checkpoints.FILE]
    monkeypatch.undo()
    same_bits(solve(tmp_path, steps=40), solve(None, steps=40))


def test_a_write_that_the_system_cuts_short(tmp_path):
    """A limit on file sizes makes the kernel refuse the rest of the file, as a full disk does."""
    solve(tmp_path, steps=20)
    good = (tmp_path / checkpoints.FILE).read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.warns(RuntimeWarning, match="was not written"):
            run = solve(tmp_path, steps=30)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert run.steps == 30
    assert (tmp_path / checkpoints.FILE).read_bytes() == good
    assert names(tmp_path) == [checkpoints.FILE]


def test_an_unwritable_folder_is_noticed_before_the_run(tmp_path):
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(OSError):
        solve(file / "folder")
