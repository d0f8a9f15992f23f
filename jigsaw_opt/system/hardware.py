"""What a measurement says of the machine that it was made on."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def hardware() -> str:
    """Return the name of the processor, where Linux tells it, else its architecture; and the number of cores."""
    table = Path("/proc/cpuinfo")
    lines = table.read_text("utf-8").splitlines() if table.exists() else []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return f"{next(models, platform.machine())}, {os.cpu_count()} cores"
