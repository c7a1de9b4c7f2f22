"""What being in a sandbox costs a program once it runs: section g.

The program takes the time itself, so that starting it is not part of the figure. Bare runs have their working folder in
memory, as sandboxes do.
"""

import random
import statistics
from pathlib import Path

from processes import Failed, run
from tables import Table, progress

PROGRAMS = Path(__file__).with_name("programs")
SUBJECTS = {
    "CPU-bound Python": "cpu",
    "numpy, one thread": "matrix",
    "50,000 × stat": "system_calls",
    "files, written and read": "files",
    "100 × start /bin/true": "spawn",
}


def seconds(text):
    try:
        return float(text)
    except ValueError as error:
        raise Failed(f"printed {text[:80]!r}") from error


def bare(bench, code):
    """With numpy's threads as a sandbox has them; the program itself asks for one."""
    output, _ = run([bench.host.python, "-c", code], bench.host.environment(), bench.host.folder("inside"))
    return seconds(output.decode())


def warm(bench, code):
    answer, _ = bench.engine().ask({"op": "run", "lang": "py", "code": code})
    if answer["exit_code"] != 0:
        raise Failed(answer.get("stderr") or f"exit code {answer['exit_code']}")
    return seconds(answer["stdout"])


def overhead(bench):
    """(g) The same program inside and outside."""
    columns = ["program", "bare ms", "redoma, warm ms", "ratio of medians", "ratio of minima", "n"]
    table = Table("(g) Overhead inside a sandbox", columns)
    repetitions = max(3, bench.rounds // 5)
    for subject, name in SUBJECTS.items():
        code = (PROGRAMS / f"{name}.py").read_text()
        times = {bare: [], warm: []}
        try:
            for side in times:
                side(bench, code)  # fills the page cache
            for number in range(repetitions):
                progress(f"{table.title}: {subject}, {number + 1} of {repetitions}")
                order = list(times)
                random.Random(number).shuffle(order)
                for side in order:
                    times[side].append(side(bench, code) * 1000)
        except Failed as failure:
            table.add_not_run(subject, str(failure))
            continue
        middle = {side: statistics.median(values) for side, values in times.items()}
        ratio, ratio_of_minima = middle[warm] / middle[bare], min(times[warm]) / min(times[bare])
        table.data.append(
            {"name": subject, "n": repetitions, "bare_ms": middle[bare], "warm_ms": middle[warm], "ratio": ratio, "ratio_of_minima": ratio_of_minima}
            | {"bare_samples_ms": times[bare], "warm_samples_ms": times[warm]}
        )
        table.add(subject, middle[bare], middle[warm], f"{ratio:.3f}", f"{ratio_of_minima:.3f}", repetitions)
        if name == "cpu":
            bench.figure("cpu_ratio", ratio)
    progress("")
    return [table]
