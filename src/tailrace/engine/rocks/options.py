"""
The options of RocksDB. They bound memory: the limits of block cache, memtables and open files do
not depend on the number of streams.
"""

import re
from typing import Final

from rocksdict import (
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    DBRecoveryMode,
    Options,
)

__all__ = [
    "BLOB_GC_SHARE",
    "BLOCK_CACHE_BYTES",
    "COMPACTION_BYTES_MAX",
    "FAMILIES",
    "cache_lookups",
    "family_options",
]

FAMILIES: Final = (
    "records", "states", "names", "buckets", "snapshots", "expiry", "garbage", "held",
    "subscriptions", "links",
)  # fmt: skip

BLOCK_CACHE_BYTES: Final = 64 << 20
MEMTABLES_BYTES: Final = 96 << 20
MEMTABLE_BYTES: Final = 32 << 20
WAL_BYTES_MAX: Final = 128 << 20
# About how much one compaction may write before it frees anything; for the reserve of the disk.
COMPACTION_BYTES_MAX: Final = 384 << 20
OPEN_FILES_MAX: Final = 512
# Larger values go to blob files: compaction then moves keys, not payloads.
BLOB_BYTES_MIN: Final = 32 << 10
BLOB_FILE_BYTES: Final = 16 << 20
# A compaction moves the live values of this share of the blob files, the oldest ones, to new ones;
# one is started for that alone when this share of their bytes is garbage.
BLOB_GC_SHARE: Final = 0.2
BLOB_GARBAGE_SHARE: Final = 0.5
_LOOKS: Final = re.compile(r"^rocksdb\.block\.cache\.(hit|miss) COUNT : (\d+)$", re.MULTILINE)


def family_options(name: str, cache: Cache) -> Options:
    """The options of one column family; options of the whole database are the same in each."""
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    if name == "default":
        # Of the whole database. A get takes 0.15 µs longer than its 1.3 µs, a write does not.
        options.enable_statistics()
    # A torn write at the end of the log is normal after a crash: recover all before it.
    options.set_wal_recovery_mode(DBRecoveryMode.point_in_time())
    options.set_paranoid_checks(True)
    options.set_db_write_buffer_size(MEMTABLES_BYTES)
    options.set_max_total_wal_size(WAL_BYTES_MAX)
    options.set_max_open_files(OPEN_FILES_MAX)
    options.set_max_background_jobs(2)
    options.set_keep_log_file_num(4)
    options.set_max_log_file_size(4 << 20)
    options.set_write_buffer_size(MEMTABLE_BYTES)
    options.set_level_compaction_dynamic_level_bytes(True)
    options.set_compression_type(DBCompressionType.lz4())
    blocks = BlockBasedOptions()
    blocks.set_block_cache(cache)
    blocks.set_block_size(16 << 10)
    blocks.set_cache_index_and_filter_blocks(True)
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(True)
    if name in ("records", "snapshots"):
        options.set_enable_blob_files(True)
        options.set_min_blob_size(BLOB_BYTES_MIN)
        options.set_blob_file_size(BLOB_FILE_BYTES)
        options.set_blob_compression_type(DBCompressionType.lz4())
        options.set_enable_blob_gc(True)
        options.set_blob_gc_age_cutoff(BLOB_GC_SHARE)
        options.set_blob_gc_force_threshold(BLOB_GARBAGE_SHARE)
    # Many lookups find nothing: a new name, a record after a checkpoint.
    blocks.set_bloom_filter(10, False)
    options.set_block_based_table_factory(blocks)
    return options


def cache_lookups(options: Options) -> tuple[int, int]:
    """Hits and misses of the block cache, from the options that the database was opened with."""
    looks = dict(_LOOKS.findall(options.get_statistics() or ""))
    return int(looks.get("hit", 0)), int(looks.get("miss", 0))
