"""What was aimed at, and what this run measured. Nothing here makes `make bench` fail."""

from tables import Table, number

AT_MOST, AT_LEAST = "≤", "≥"
# (what, figure, direction, bound, unit)
TARGETS = [
    ("fresh `print(1)` through the engine, p50 ÷ bare p50", "print_p50_ratio", AT_MOST, 0.15, "×"),
    ("fresh `print(1)` through the engine, p99 ÷ bare p50, one client", "print_p99_ratio", AT_MOST, 1.0, "×"),
    ("`redoma run -c 'print(1)'`, p50 over bare's ÷ bubblewrap's over bare's", "cold_over_bubblewrap", AT_MOST, 1.0, "×"),
    ("the same ÷ nsjail's", "cold_over_nsjail", AT_MOST, 1.0, "×"),
    ("fresh DataFrame + groupby + plot + PNG, p50 ÷ bare p50", "plot_ratio", AT_MOST, 0.3, "×"),
    ("fresh JavaScript, p50 ÷ bare `node -e` p50", "node_ratio", AT_MOST, 0.25, "×"),
    ("throughput with 16 clients ÷ bubblewrap + python", "throughput_ratio_16", AT_LEAST, 5.0, "×"),
    ("failed runs in all of the throughput section", "throughput_failures", AT_MOST, 0, ""),
    ("failed runs in the bursts of 200", "burst_failures", AT_MOST, 0, ""),
    ("PSS per idle warm sandbox with the full preload", "idle_pss_mib", AT_MOST, 4.0, " MiB"),
    ("CPU-bound Python inside ÷ bare, median", "cpu_ratio", AT_MOST, 1.03, "×"),
    ("mounts, control groups, files, processes, open files left by many runs", "left_behind", AT_MOST, 0, ""),
    ("the same (without processes) when the engine has ended", "left_after_end", AT_MOST, 0, ""),
    ("fresh `print(1)` over HTTP, p50 ÷ bare p50", "http_print_p50_ratio", AT_MOST, 0.25, "×"),
    ("answers over HTTP to 64 clients that were not right, nor an honest 429", "http_load_errors", AT_MOST, 0, ""),
    ("exec and download with 1,000,000 files stored ÷ with none, p50, the worse of both", "flat_ratio", AT_MOST, 1.2, "×"),
    ("warm cell `x += 1` over HTTP, p50 ÷ bare start of Python, p50", "cell_bare_ratio", AT_MOST, 0.1, "×"),
    ("the same ÷ round trip of a real ipykernel, p50", "cell_ipykernel_ratio", AT_MOST, 0.2, "×"),
    ("what checkpoints add to a cell of a session with 100 MB, one per 50 ms, p50", "checkpoint_paced_ms", AT_MOST, 3.0, " ms"),
    ("the same, back to back", "checkpoint_ms", AT_MOST, 3.0, " ms"),
    ("branch of that session, p50", "branch_ms", AT_MOST, 20.0, " ms"),
    ("memory of 500 live idle sessions with pandas", "idle_sessions_gib", AT_MOST, 4.0, " GiB"),
    ("fresh `print(1)` over HTTP beside these ÷ without them, p50", "fresh_beside_sessions_ratio", AT_MOST, 1.2, "×"),
    ("one user's requests beside a hostile user ÷ alone, p50 of all", "neighbour_ratio", AT_MOST, 1.5, "×"),
    ("the same, the kind of request that suffers most", "neighbour_worst_ratio", AT_MOST, 2.0, "×"),
    ("throughput with rules and an audit ÷ without", "governed_ratio", AT_LEAST, 0.9, "×"),
    ("failed requests beside a hostile user", "neighbour_failures", AT_MOST, 0, ""),
]
ELSEWHERE = "The attack suite on warm sandboxes, siblings that share nothing, and zygotes that die are tests: `make test`."


def table_of_targets(figures):
    table = Table("Targets", ["what", "target", "measured", "met"], remarks=[ELSEWHERE])
    for what, name, direction, bound, unit in TARGETS:
        figure = figures.get(name)
        met, measured = "not measured", "–"
        if figure:
            value = figure["value"]
            met = "yes" if (value <= bound if direction == AT_MOST else value >= bound) else "no"
            if figure["failed"]:
                met = f"no: {figure['failed']} runs failed"
            measured = f"{value:.3f}{unit}" if isinstance(value, float) else number(value) + unit
            measured += f" ({figure['remark']})" if figure["remark"] else ""
        table.add(what, f"{direction} {bound}{unit}", measured, met)
        table.data.append({"name": what, "target": f"{direction} {bound}", "met": met, **(figure or {"value": None})})
    return table
