"""Kill a program at random moments, again and again, until it gets through."""

import os
import random
import signal
import subprocess
import sys
import time


def killed_until_done(program, file, *arguments, kills, longest=0.1):
    """Run Python code that prints "started", resumes from `file` and prints "finished".

    Each life is killed (SIGKILL) up to `longest` seconds after its first write of the file, writes
    included. At least one death is asked for.
    """
    moments = random.Random(0)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", program, *map(str, arguments)]
    deaths = 0
    for _ in range(kills + 20):
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert process.stdout.readline() == "started\n", process.stderr.read()
        if deaths < kills:
            before = file.stat().st_mtime_ns if file.exists() else 0
            deadline = time.monotonic() + 60
            while process.poll() is None and time.monotonic() < deadline:
                if file.exists() and file.stat().st_mtime_ns != before:
                    break
                time.sleep(0.002)
            time.sleep(moments.uniform(0, longest))
            process.send_signal(signal.SIGKILL)
        out, err = process.communicate(timeout=300)
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL, err
        deaths += 1
    assert "finished" in out
    assert deaths >= 1
