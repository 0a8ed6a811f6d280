"""What the figures were taken on, in words that name no machine."""

from __future__ import annotations

import os
import platform
import sys
import sysconfig
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


def describe() -> dict[str, Any]:
    """Kind of machine, interpreter and how it was built, load at the time."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu(),
        "cores": os.cpu_count() or 0,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "build": _build(),
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
    }


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


def _build() -> str:
    """Whether the interpreter was optimised when it was built: worth a factor of 1.1 to 1.5."""
    config = str(sysconfig.get_config_var("CONFIG_ARGS") or "")
    words = ["profile-guided" if "--enable-optimizations" in config else "not profile-guided"]
    if "--with-lto" in config:
        words.append("LTO")
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        words.append("free-threaded")
    return ", ".join(words)
