"""The streams that a job reads."""

import json
from dataclasses import dataclass

from tailrace.spark.options import ConnectionOptions, data_source_options

__all__ = ["StreamSelection"]


@dataclass(frozen=True, kw_only=True)
class StreamSelection(ConnectionOptions):
    """The streams of a server that a job reads."""

    bucket: str | None = None
    streams: tuple[str, ...] = ()
    prefix: str = ""
    pattern: str | None = None
    fail_on_data_loss: bool = True

    def describe(self) -> str:
        """The selection as text; a table keeps it."""
        where = "paths" if self.bucket is None else f"bucket {self.bucket}"
        chosen = [f"prefix {self.prefix}"] if self.prefix else []
        chosen += [f"pattern {self.pattern}"] if self.pattern else []
        chosen += [f"streams {', '.join(sorted(self.streams))}"] if self.streams else []
        return ", ".join([where, *chosen])

    def source_options(self, **more: object) -> dict[str, str]:
        """The options of the source."""
        return data_source_options(
            self,
            bucket=self.bucket,
            prefix=self.prefix,
            pattern=self.pattern,
            streams=json.dumps(self.streams) if self.streams else None,
            failOnDataLoss=str(self.fail_on_data_loss).lower(),
            **more,
        )
