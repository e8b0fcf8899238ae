"""What every format does alike, without Spark."""

import pickle
import shutil
import threading
from pathlib import Path

import pytest

from tailrace.spark.tables import (
    FORMATS,
    BatchDiffers,
    FormatUnknown,
    LibraryMissing,
    PathAwkward,
    PathUnsupported,
    SourceTaken,
    TableBusy,
    TableMismatch,
    TableMissing,
    open_table,
)
from tailrace.spark.tables.files import alone, local_path
from tests.spark.tables.other_readers import (
    column_types,
    commit,
    compact,
    new_table,
    read,
    rows,
    visible_files,
)
from tests.support.together import together


@pytest.fixture(params=FORMATS)
def format(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_batch_is_stored_once(format: str, tmp_path: Path) -> None:
    table = new_table(format, tmp_path)
    first = commit(table, 0, rows(0))
    assert (first.new, first.rows, first.files) == (True, 6, 4)
    assert first.bytes == sum((tmp_path / name).stat().st_size for name in visible_files(tmp_path))
    assert not commit(table, 0, rows(0)).new
    assert read(table) == rows(0)


def test_batches_add_up_and_survive_a_new_process(format: str, tmp_path: Path) -> None:
    commit(new_table(format, tmp_path), 0, rows(0))
    again = new_table(format, tmp_path)
    # Batches without rows leave gaps: Spark does not ask for them at all.
    commit(again, 4, rows(4))
    assert [again.committed(batch_id) for batch_id in (0, 3, 4, 5)] == [True, True, True, False]
    assert read(again) == rows(0) + rows(4)


def test_an_empty_batch_is_remembered(format: str, tmp_path: Path) -> None:
    table = new_table(format, tmp_path)
    assert commit(table, 0, []).new
    assert table.committed(0) and table.files() == [] and read(table) == []
    commit(table, 1, rows(1))
    assert commit(table, 2, []).rows == 0
    assert table.committed(2) and read(table) == rows(1)


def test_applications_have_separate_batch_ids(format: str, tmp_path: Path) -> None:
    one, other = (new_table(format, tmp_path, application=name) for name in ("one", "other"))
    commit(one, 7, rows(7))
    assert not other.committed(0)
    commit(other, 0, rows(0))
    assert read(one) == rows(0) + rows(7)


def test_compaction_keeps_every_row_and_the_batches(format: str, tmp_path: Path) -> None:
    table = new_table(format, tmp_path)
    for batch_id in range(3):
        commit(table, batch_id, rows(batch_id))
    assert len(table.files()) == 12
    done = compact(table)
    assert (done.before, done.after) == (12, 4)
    assert len(table.files()) == 4
    assert read(table) == rows(0) + rows(1) + rows(2)
    assert not commit(table, 2, rows(2)).new
    assert compact(table).before == 0


def test_a_checkpoint_that_was_set_back_is_refused(format: str, tmp_path: Path) -> None:
    """The same id with other contents: what it has more would be lost."""
    table = new_table(format, tmp_path)
    commit(table, 0, rows(0), source="bucket", mark="to 6")
    commit(table, 1, rows(1), source="bucket", mark="to 12")
    assert not commit(table, 1, rows(1), source="bucket", mark="to 12").new
    with pytest.raises(BatchDiffers) as error:
        commit(table, 1, rows(1, 9), source="bucket", mark="to 15")
    assert error.value.batch_id == 1 and "checkpoint is older" in str(error.value)
    assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)
    assert read(table) == rows(0) + rows(1)


def test_a_new_checkpoint_over_the_same_streams_is_refused(format: str, tmp_path: Path) -> None:
    """It would begin from the start, and store every message twice."""
    commit(new_table(format, tmp_path, application="lost"), 0, rows(0), source="bucket news")
    table = new_table(format, tmp_path, application="new")
    with pytest.raises(SourceTaken, match="another checkpoint"):
        commit(table, 0, rows(0), source="bucket news")
    commit(table, 0, rows(1), source="bucket weather")
    assert read(table) == rows(0) + rows(1)


def test_rows_without_a_bucket_and_odd_directories(format: str, tmp_path: Path) -> None:
    """Streams of the base surface have no bucket."""
    table = new_table(format, tmp_path / "my table ü")
    content = [{**row, "bucket": None} for row in rows(0)]
    commit(table, 0, content)
    commit(table, 1, rows(1))
    assert read(table) == content + rows(1)
    assert {file.partition[0] for file in table.files()} == {None, "0042", "news"}
    compact(table)
    assert read(table) == content + rows(1)


def test_types_widen_in_place(format: str, tmp_path: Path) -> None:
    table = new_table(format, tmp_path)
    commit(table, 0, rows(0))
    commit(table, 1, rows(1), wide=True)
    assert column_types(table)["message"] == "double"
    # A batch of the old type is one of the new type.
    assert read(table) == rows(0) + rows(1)
    assert {type(row["message"]) for row in read(table)} == {float}


def test_two_writers_take_turns(format: str, tmp_path: Path) -> None:
    def write(name: str, first: int) -> None:
        table = new_table(format, tmp_path, application=name)
        for batch_id in range(first, first + 3):
            commit(table, batch_id, rows(batch_id))

    together([lambda: write("one", 0), lambda: write("other", 10)])
    expected = [row for batch_id in (0, 1, 2, 10, 11, 12) for row in rows(batch_id)]
    assert read(new_table(format, tmp_path)) == expected


def test_a_table_is_of_one_kind(tmp_path: Path) -> None:
    new_table("parquet", tmp_path)
    with pytest.raises(TableMismatch, match="format"):
        new_table("delta", tmp_path)
    with pytest.raises(TableMismatch, match="partition_by"):
        open_table("parquet", tmp_path)


def test_reading_does_not_create_a_table(tmp_path: Path) -> None:
    with pytest.raises(TableMissing, match="check the path"):
        open_table("parquet", tmp_path / "typo", create=False)
    assert not (tmp_path / "typo").exists()


def test_a_table_has_an_id(tmp_path: Path) -> None:
    """A table that is deleted and created again is another table."""
    first = new_table("parquet", tmp_path / "t").id
    assert new_table("parquet", tmp_path / "t").id == first
    shutil.rmtree(tmp_path / "t")
    assert new_table("parquet", tmp_path / "t").id != first


def test_a_busy_table_is_an_error(tmp_path: Path) -> None:
    lock = tmp_path / "_tailrace" / "lock"
    release = threading.Event()
    with alone(lock), pytest.raises(TableBusy, match="another process"), alone(lock, wait_s=0):
        release.set()
    assert not release.is_set()


@pytest.mark.parametrize("path", ["s3://bucket/t", "hdfs://host/t", "dbfs:/t", "file://host/t", ""])
def test_tables_are_local(path: str) -> None:
    with pytest.raises(PathUnsupported, match="local directory"):
        open_table("parquet", path)


@pytest.mark.parametrize("format", ["iceberg", "delta"])
def test_a_path_that_looks_like_a_url_is_refused(format: str, tmp_path: Path) -> None:
    for name in ("a%41", "a#b", "a?b"):
        with pytest.raises(PathAwkward, match="rename the directory"):
            open_table(format, tmp_path / name)
        table = new_table("parquet", tmp_path / name)
        commit(table, 0, rows(0))
        assert read(table) == rows(0)


def test_a_file_url_is_local() -> None:
    assert local_path("file:///a/b%20c") == Path("/a/b c")
    assert local_path("a").is_absolute()


def test_an_unknown_format_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(FormatUnknown, match="parquet, iceberg or delta"):
        open_table("orc", tmp_path)


@pytest.mark.parametrize(("format", "library"), [("iceberg", "pyiceberg"), ("delta", "deltalake")])
def test_a_missing_library_says_what_to_install(
    format: str, library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (library, f"{library}.catalog", f"{library}.catalog.sql"):
        monkeypatch.setitem(__import__("sys").modules, module, None)
    with pytest.raises(LibraryMissing) as error:
        open_table(format, tmp_path)
    assert f"pip install 'tailrace[{format}]'" in str(error.value)
