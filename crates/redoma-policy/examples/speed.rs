//! Measures what a check costs: `cargo run --release -p redoma-policy --example speed [LANGUAGE]`.
//!
//! Each program is about 100 KB of what models write, repeated. The best and the middle of many rounds are shown, by the
//! clock and by the time that this thread had a processor: a machine that has other things to do makes the first one
//! worse, and says nothing about the check.

use std::time::{Duration, Instant};

use redoma_model::policy::PolicySettings;
use redoma_policy::facts::Language;
use redoma_policy::{Policy, read};
use rustix::time::{ClockId, clock_gettime};

const SIZE: usize = 100_000;
const ROUNDS: usize = 100;

const PYTHON: &str = r#"
import numpy as np
import pandas as pd
import matplotlib.pyplot as plt
from pathlib import Path

def load(folder: Path, pattern: str = "*.csv") -> pd.DataFrame:
    """Reads every table in a folder into one frame."""
    frames = []
    for path in sorted(folder.glob(pattern)):
        frame = pd.read_csv(path, parse_dates=["date"], dtype={"store": "category"})
        frame["source"] = path.name
        frames.append(frame)
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()

class Report:
    def __init__(self, data: pd.DataFrame, title: str) -> None:
        self.data, self.title = data, title

    def summary(self) -> pd.DataFrame:
        grouped = self.data.groupby(["store", self.data["date"].dt.month])
        result = grouped["sales"].agg(["mean", "std", "sum"]).reset_index()
        result["share"] = result["sum"] / result["sum"].sum() * 100
        return result.sort_values("sum", ascending=False).head(20)

    def draw(self, target: str) -> None:
        fig, axes = plt.subplots(1, 2, figsize=(12, 5))
        axes[0].plot(self.data["date"], self.data["sales"], label=f"{self.title} sales")
        axes[1].hist(np.log1p(self.data["sales"].to_numpy()), bins=40, alpha=0.7)
        for axis in axes:
            axis.legend(loc="best")
            axis.grid(True)
        fig.tight_layout()
        fig.savefig(target, dpi=150)

data = load(Path("/mnt/data"))
report = Report(data, "quarter")
print(report.summary().to_string(index=False))
report.draw("/mnt/data/sales.png")
totals = {store: float(part["sales"].sum()) for store, part in data.groupby("store")}
print(sorted(totals.items(), key=lambda item: -item[1])[:10])
"#;

const JAVASCRIPT: &str = r#"
import { readFileSync, writeFileSync, readdirSync } from "node:fs";
import path from "node:path";

function parse(text, separator = ",") {
  const [head, ...lines] = text.trim().split("\n");
  const names = head.split(separator).map((name) => name.trim().toLowerCase());
  return lines.map((line) => Object.fromEntries(line.split(separator).map((value, index) => [names[index], value])));
}

class Store {
  #rows = [];
  constructor(folder) {
    for (const file of readdirSync(folder)) {
      if (!file.endsWith(".csv")) continue;
      this.#rows.push(...parse(readFileSync(path.join(folder, file), "utf8")));
    }
  }
  total(key, value) {
    return this.#rows.reduce((sums, row) => {
      sums[row[key]] = (sums[row[key]] ?? 0) + Number(row[value]);
      return sums;
    }, {});
  }
  async *pages(size = 50) {
    for (let at = 0; at < this.#rows.length; at += size) {
      yield this.#rows.slice(at, at + size);
    }
  }
}

const store = new Store("/mnt/data");
const totals = store.total("region", "sales");
const sorted = Object.entries(totals).sort(([, a], [, b]) => b - a);
for (const [region, sum] of sorted) console.log(`${region}: ${sum.toFixed(2)}`);
for await (const page of store.pages()) {
  const mean = page.reduce((sum, row) => sum + Number(row.sales), 0) / page.length;
  if (Number.isNaN(mean)) throw new Error("a page has no sales");
}
writeFileSync("/mnt/data/totals.json", JSON.stringify({ totals, made: new Date().toISOString() }, null, 2));
"#;

const BASH: &str = r#"
set -euo pipefail
# build the project and collect the results
SRC_DIR="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
OUT="${1:-/mnt/data/out}"
mkdir -p "$OUT" && cd "$OUT"
for file in "$SRC_DIR"/*.csv; do
  name=$(basename "$file" .csv)
  if [ ! -s "$file" ]; then
    echo "skipping empty $file" >&2
    continue
  fi
  awk -F, 'NR > 1 { total += $3 } END { printf "%s %d\n", FILENAME, total }' "$file" | sort -k2 -n | head -n 20 > "$OUT/$name.txt"
  grep -v '^#' "$file" | cut -d, -f1,2 | uniq -c | tee "$OUT/$name.counts"
done
clean_up() {
  local folder="$1"
  rm -rf "$folder/tmp" || true
  find "$folder" -name '*.pyc' -delete
}
case "$OUT" in
  /mnt/data/*) clean_up "$OUT" ;;
  *) echo "unexpected folder: $OUT"; exit 1 ;;
esac
cat <<EOF > "$OUT/README"
made from $SRC_DIR
EOF
python3 analyse.py --input "$OUT" --format json
tar czf result.tar.gz -C "$OUT" .
"#;

#[expect(clippy::print_stdout, reason = "that is what it is for")]
fn main() {
    let policy = Policy::compile(&PolicySettings::default(), None).expect("shipped rules are sound");
    let start = Instant::now();
    Policy::compile(&PolicySettings::default(), None).expect("shipped rules are sound");
    println!("compiling a policy again: {:.2} ms", millis(start.elapsed()));
    let typescript =
        JAVASCRIPT.replace("(text, separator = \",\")", "(text: string, separator: string = \",\"): any[]");
    let wanted = std::env::args().nth(1);
    for (name, language, code) in [
        ("python", Language::Python, PYTHON),
        ("javascript", Language::JavaScript, JAVASCRIPT),
        ("typescript", Language::TypeScript, &typescript),
        ("bash", Language::Bash, BASH),
    ] {
        if wanted.as_ref().is_some_and(|wanted| wanted != name) {
            continue;
        }
        // Modules import at the top only; each copy stands in a block of its own there.
        let piece = match language {
            Language::JavaScript | Language::TypeScript => {
                code.lines().filter(|line| !line.starts_with("import")).collect::<Vec<_>>().join("\n")
            }
            _ => code.to_owned(),
        };
        let mut program =
            code.lines().filter(|line| line.starts_with("import")).collect::<Vec<_>>().join("\n");
        while program.len() < SIZE {
            match language {
                Language::JavaScript | Language::TypeScript => {
                    program.push_str("\n{\n");
                    program.push_str(&piece);
                    program.push_str("\n}\n");
                }
                _ => program.push_str(&piece),
            }
        }
        let facts = read(language, &program).len();
        let reading = measured(|| read(language, &program).len());
        let verdict = policy.check(language, &program);
        let checking = measured(|| policy.check(language, &program).findings.len());
        println!(
            "{name:<11} {:>6} bytes {facts:>5} facts  {:?}, {} findings\n    read  {reading}\n    check {checking}",
            program.len(),
            verdict.action,
            verdict.findings.len(),
        );
        for finding in verdict.findings.iter().take(2) {
            println!("    {} {}: {}", finding.rule, finding.line, finding.excerpt);
        }
    }
}

/// The best and the middle of many rounds.
struct Measured {
    clock: (Duration, Duration),
    processor: (Duration, Duration),
}

impl std::fmt::Display for Measured {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { clock, processor } = self;
        let [best, middle] = [clock.0, clock.1].map(millis);
        let [processor_best, processor_middle] = [processor.0, processor.1].map(millis);
        write!(f, "best {processor_best:.2} ms, middle {processor_middle:.2} ms of a processor; ")?;
        write!(f, "best {best:.2} ms, middle {middle:.2} ms by the clock")
    }
}

fn measured(work: impl Fn() -> usize) -> Measured {
    let (mut clock, mut processor) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (start, processor_start) = (Instant::now(), processor_time());
        std::hint::black_box(work());
        clock.push(start.elapsed());
        processor.push(processor_time().saturating_sub(processor_start));
    }
    clock.sort();
    processor.sort();
    let middle = ROUNDS / 2;
    Measured { clock: (clock[0], clock[middle]), processor: (processor[0], processor[middle]) }
}

/// How long this thread has had a processor.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).expect("a thread's time is not negative")
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
