from __future__ import annotations

import pytest

from tests.server.subscriptions.surface import Surface
from tests.support.streams import Api


@pytest.fixture
def surface(api: Api) -> Surface:
    return Surface(api)
