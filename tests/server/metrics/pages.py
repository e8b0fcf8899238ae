"""The parsed metrics page of a server."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from tests.support.streams import Api

Labels = tuple[tuple[str, str], ...]


class Page:
    """The samples of one scrape."""

    def __init__(self, text: str) -> None:
        self.families: dict[str, Metric] = {
            family.name: family for family in text_string_to_metric_families(text)
        }
        self._values: dict[tuple[str, Labels], float] = {}
        for family in self.families.values():
            for sample in family.samples:
                key = sample.name, tuple(sorted(sample.labels.items()))
                assert key not in self._values, f"{key} twice"
                self._values[key] = sample.value

    def __call__(self, name: str, **labels: str) -> float:
        """The value of one sample."""
        return self._values[name, tuple(sorted(labels.items()))]

    def all(self, name: str) -> Mapping[Labels, float]:
        """The values of all samples of a name, by their labels."""
        return {labels: value for (at, labels), value in self._values.items() if at == name}

    def labels(self, name: str, label: str) -> dict[str, float]:
        """The values of all samples of a name, by one label."""
        return {dict(labels)[label]: value for labels, value in self.all(name).items()}


def scrape(api: Api) -> Page:
    response = api.request("GET", f"{api.server.base_path}/-/metrics")
    assert response.status == 200, (response.status, response.body)
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    return Page(response.text)
