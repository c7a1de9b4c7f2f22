//! What can be said on the command line. Help texts are the reference: keep them teaching.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use redoma_model::{ByteSize, Cores, LimitsPatch, Span};

/// Runs the code that a model wrote in a sandbox that nothing gets out of.
#[derive(Debug, Parser)]
#[command(
    name = "redoma",
    version,
    max_term_width = 100,
    after_help = "\
Start here:
  redoma setup                          prepare the runtime (once)
  redoma doctor                         see what this host offers and what is missing
  redoma run -c 'print(6 * 7)'          run something
  redoma run --out results plot.py      run a script and keep the files it makes
  redoma serve                          serve chats and agents on http://127.0.0.1:8000"
)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// What was said. Describing all commands takes longer than reading them, and `run` has somebody waiting: it is read by
    /// itself first. Whatever is not plain, such as a mistake or a wish for help, is for the whole.
    pub fn from_command_line() -> Self {
        let mut words = std::env::args_os();
        let program = words.next();
        if words.next().is_some_and(|command| command == "run")
            && let Ok(RunAlone { global, arguments }) =
                RunAlone::try_parse_from(program.into_iter().chain(words))
        {
            return Self { global, command: Command::Run(Box::new(arguments)) };
        }
        Self::parse()
    }
}

/// `redoma run` without the other commands.
#[derive(Debug, Parser)]
struct RunAlone {
    #[command(flatten)]
    global: Global,
    #[command(flatten)]
    arguments: RunArguments,
}

#[derive(Debug, Args)]
pub struct Global {
    /// Where runtimes and state are kept [default: /var/lib/redoma for root, else ~/.local/share/redoma]
    #[arg(long, global = true, env = "REDOMA_DATA_DIR", value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// The configuration file [default: redoma.toml in the data folder, else /etc/redoma/redoma.toml]
    #[arg(long, global = true, env = "REDOMA_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a program once, isolated, without a server
    Run(Box<RunArguments>),
    /// Serve chats and agents over HTTP
    Serve(ServeArguments),
    /// Say who may use the server
    #[command(subcommand)]
    Keys(KeysCommand),
    /// Look at the conversations that the server keeps, and remove them
    #[command(subcommand)]
    Sessions(SessionsCommand),
    /// Ask what the rules say about a program, and which rules there are
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Write, check and show the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// See who did what, check that nothing of it was changed, take it elsewhere
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Prepare what is inside sandboxes: a Python environment, Node, folders
    Setup(SetupArguments),
    /// Check what this kernel and host offer, what is missing and how to get it
    Doctor(DoctorArguments),
    /// Measure how fast it is on this machine
    Bench(BenchArguments),
    /// Find where a code base runs code, commands or data that it was given
    Scan(crate::scan::ScanArguments),
}

#[derive(Debug, Args)]
#[command(after_help = "\
The program runs in /mnt/data, an empty folder of its own (plus the --in files), with no network, no
access to this machine's files, and within the limits. Its output is passed on as it comes; its exit
code becomes redoma's.

Exit codes: the program's own; 128+N if signal N ended it; 124 if it ran out of time; 137 if it reached
another limit; 125 if redoma refused or failed; 2 if the command line is wrong.

Examples:
  redoma run -c 'import pandas; print(pandas.__version__)'
  redoma run --lang js -c 'console.log([3, 1, 2].sort())'
  redoma run --in sales.csv --out results report.py 2025
  redoma run --json --wall 5s --memory 256MiB script.ts
  echo 'echo hello from bash' | redoma run --lang bash -")]
pub struct RunArguments {
    /// The program's file; `-` reads the program from standard input
    #[arg(value_name = "FILE", required_unless_present = "code")]
    pub file: Option<OsString>,
    /// Arguments for the program
    #[arg(value_name = "ARGS", trailing_var_arg = true, allow_hyphen_values = true)]
    pub arguments: Vec<OsString>,
    /// The program itself, as text
    #[arg(short = 'c', value_name = "CODE", allow_hyphen_values = true)]
    pub code: Option<String>,
    /// py, js, ts or bash [default: told by the file's name; py for -c and -]
    #[arg(long, short = 'l', value_name = "LANG")]
    pub lang: Option<String>,
    /// A profile in the configuration, or the path of a profile's own TOML file
    #[arg(long, value_name = "PROFILE")]
    pub profile: Option<String>,
    /// The runtime: a prepared one's name, or the path of a root file system folder
    #[arg(long, value_name = "RUNTIME")]
    pub runtime: Option<String>,
    /// Print one JSON object with everything about the run instead of its output
    #[arg(long)]
    pub json: bool,
    /// Say nothing about limits and files on stderr
    #[arg(long, short)]
    pub quiet: bool,
    /// A file to put into the workspace; the original can't be changed (may be repeated)
    #[arg(long = "in", value_name = "FILE")]
    pub inputs: Vec<PathBuf>,
    /// Copy the files that the program makes or changes into this folder; files of the same name there are replaced
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Run it the way a server does, in a sandbox copied from a waiting interpreter. For one run the start of that
    /// interpreter makes it slower, not faster
    #[arg(long)]
    pub warm: bool,
    #[command(flatten)]
    pub limits: LimitArguments,
}

#[derive(Debug, Args)]
#[command(after_help = "\
On its first start it makes an admin key, shows it once and keeps it in admin.key in the data folder
(readable for you alone); REDOMA_API_KEY sets another. Chats get keys of their own:

  redoma keys create --client librechat     a key for LibreChat, which names its users itself
  redoma keys create --user ana             a key for one person or agent

What it serves: /v1 (LibreChat: LIBRECHAT_CODE_BASEURL=http://HOST:8000/v1), /jupyter (Jupyter
clients), /api/v1 (its own API, described at /docs), /healthz, /readyz, /metrics (with an admin
key). It listens on this host only; for other hosts name an address of a private network with
--listen, never one that the internet reaches. TLS is a reverse proxy's work.

SIGHUP reads profiles from the configuration again; a file with a mistake in it changes nothing.
SIGTERM and Ctrl-C let running programs finish for up to 30 s; a second one ends them at once.")]
pub struct ServeArguments {
    /// Where to listen [default: 127.0.0.1:8000]
    #[arg(long, env = "REDOMA_LISTEN", value_name = "ADDRESS:PORT")]
    pub listen: Option<String>,
    /// Let everybody in who can reach it, without keys; only on a loopback address
    #[arg(long)]
    pub no_auth: bool,
    /// How the log looks: pretty or json [default: pretty on a terminal, else json]
    #[arg(long, value_name = "FORMAT")]
    pub log: Option<LogFormat>,
    /// LibreChat's public key (PEM or JWKS), if it signs its requests
    #[arg(long, env = "REDOMA_LIBRECHAT_JWT_KEY", value_name = "FILE")]
    pub librechat_jwt_key: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    Pretty,
    Json,
}

#[derive(Debug, Subcommand)]
pub enum KeysCommand {
    /// Make a key and show it, once
    Create(KeyArguments),
    /// List keys, without their secrets
    List {
        /// Print JSON instead of a table
        #[arg(long)]
        json: bool,
    },
    /// Take a key back; it stops working at once
    Revoke {
        /// The key's id, as `redoma keys list` shows it
        id: String,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "\
A client is a chat front end that acts for many users and says for which. All keys of one client
open the same things, so that a new key can take an old one's place. A user's key opens what is
theirs alone.")]
pub struct KeyArguments {
    /// A key for a chat front end of this name; with --user, the user's client
    #[arg(long, value_name = "NAME", required_unless_present_any = ["user", "admin"])]
    pub client: Option<String>,
    /// A key for this user only
    #[arg(long, value_name = "USER", conflicts_with = "admin")]
    pub user: Option<String>,
    /// A key that may do everything, keys included
    #[arg(long, conflicts_with = "client")]
    pub admin: bool,
    /// The profile of those who come with it, instead of the default one; they can't choose another
    #[arg(long, value_name = "PROFILE", conflicts_with = "admin")]
    pub profile: Option<String>,
    /// A note for yourself
    #[arg(long, value_name = "TEXT")]
    pub label: Option<String>,
    /// Print JSON instead of the key alone
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// Check a program without running it: exit 0 if it would run, 1 if not and why
    #[command(after_help = "\
Rules are governance: they tell honest programs what is not wanted here, before they run. What holds
hostile ones is the sandbox, whatever the rules say.

Examples:
  redoma policy check script.py
  redoma policy check --profile strict --lang bash - < build.sh
  redoma policy check --json model-output.ts | jq .findings")]
    Check {
        /// The program; `-` reads it from standard input
        file: PathBuf,
        /// py, js, ts or bash [default: told by the file's name]
        #[arg(long, short = 'l', value_name = "LANG")]
        lang: Option<String>,
        /// By the rules of this profile [default: `default`]
        #[arg(long, value_name = "PROFILE")]
        profile: Option<String>,
        /// Print JSON instead
        #[arg(long)]
        json: bool,
    },
    /// List the rules that hold, with what they do; or explain one rule or class
    Explain {
        /// A rule's id, or a class
        rule: Option<String>,
        /// Of this profile [default: `default`]
        #[arg(long, value_name = "PROFILE")]
        profile: Option<String>,
        /// Print JSON instead
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Write a redoma.toml in which every key is explained
    ///
    /// All keys are commented out and show their defaults. An existing file is never touched.
    Init {
        /// Print it instead
        #[arg(long)]
        stdout: bool,
    },
    /// Check a configuration without using it: exit 0 if a server would take it, 1 if not and why
    Check {
        /// The file [default: the one that would be used]
        file: Option<PathBuf>,
    },
    /// Show what holds, and where each value was said
    #[command(after_help = "\
Examples:
  redoma config show                          the profile `default`
  redoma config show --profile strict         a profile
  redoma config show --key KEY-ID --user ana  what somebody with this key gets, for the user ana")]
    Show {
        /// This profile
        #[arg(long, value_name = "PROFILE", conflicts_with_all = ["key", "user", "client"])]
        profile: Option<String>,
        /// What the holder of this key gets (an id from `redoma keys list`)
        #[arg(long, value_name = "ID")]
        key: Option<String>,
        /// What this user gets
        #[arg(long, value_name = "USER")]
        user: Option<String>,
        /// Through this client
        #[arg(long, value_name = "CLIENT", conflicts_with = "key")]
        client: Option<String>,
        /// Print JSON instead of a table
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Subcommand)]
pub enum SessionsCommand {
    /// List conversations, oldest first
    List {
        /// Only this user's
        #[arg(long, value_name = "USER")]
        user: Option<String>,
        /// At most so many
        #[arg(long, default_value_t = 100, value_name = "COUNT")]
        limit: usize,
        /// Print JSON instead of a table
        #[arg(long)]
        json: bool,
    },
    /// Remove conversations with all their files. The server must not be running
    Rm {
        #[arg(value_name = "ID", required = true)]
        ids: Vec<String>,
    },
    /// Check that the database is sound and every file is there as it was stored
    Check,
}

#[derive(Debug, Subcommand)]
#[command(after_help = "\
Everything that is done through the server is written down in audit/ in the data folder, each record
sealed to the one before it. These commands only read, and work beside a running server.")]
pub enum AuditCommand {
    /// Show the newest records
    #[command(after_help = "\
Examples:
  redoma audit tail                                  the last 20
  redoma audit tail --follow                         and what comes
  redoma audit tail --user ana --since 1h -n 100     what ana did in the last hour
  redoma audit tail --kind execution_denied --kind login_failed
  redoma audit tail --json -n 1000 | jq .code.sha256")]
    Tail {
        #[command(flatten)]
        filter: AuditFilter,
        /// At most so many
        #[arg(short = 'n', long, default_value_t = 20, value_name = "COUNT")]
        count: usize,
        /// Go on with records as they come
        #[arg(long, short)]
        follow: bool,
        /// Print records as JSON, one a line
        #[arg(long)]
        json: bool,
    },
    /// Check that nothing was changed, removed, inserted, reordered or cut off
    #[command(after_help = "\
Exit code 0: it is as it was written. 1: it is not, and each line says where and what.

The seals are checked with the key in audit/key. Whoever has that key and may write the files can make
all of it anew; a head that was kept elsewhere shows that. The server logs it when it starts, when it
stops and every hour.

Examples:
  redoma audit verify
  redoma audit verify --head 42:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
  redoma audit verify --key /media/safe/audit.key --json")]
    Verify {
        /// A record that is known from elsewhere to be in it, as the server logs it
        #[arg(long, value_name = "SEQ:HASH")]
        head: Option<String>,
        /// The audit's key, if it is not beside it
        #[arg(long, value_name = "FILE")]
        key: Option<PathBuf>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Write records to a file, oldest first
    #[command(after_help = "\
Examples:
  redoma audit export --since 2026-11-01 --until 2026-12-01 --out november.jsonl
  redoma audit export --format csv --user ana --out ana.csv")]
    Export {
        #[command(flatten)]
        filter: AuditFilter,
        /// jsonl (exactly as in the audit) or csv (for spreadsheets)
        #[arg(long, default_value = "jsonl", value_name = "FORMAT")]
        format: ExportFormat,
        /// The file; replaced if there is one [default: standard output]
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ExportFormat {
    Jsonl,
    Csv,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Which records")]
pub struct AuditFilter {
    /// Only this user's
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,
    /// Only this client's
    #[arg(long, value_name = "CLIENT")]
    pub client: Option<String>,
    /// Only of this session
    #[arg(long, value_name = "ID")]
    pub session: Option<String>,
    /// Only of this execution
    #[arg(long, value_name = "ID")]
    pub execution: Option<String>,
    /// Only of this kind, such as `execution_started` (may be repeated)
    #[arg(long, value_name = "KIND")]
    pub kind: Vec<String>,
    /// From then on: how long ago (1h, 7d), or when (2026-11-15, 2026-11-15T21:00:00Z)
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Up to then
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Runs small programs through the engine, each in a fresh sandbox, beside the same programs without
any isolation, and shows how long they take.")]
pub struct BenchArguments {
    /// How often each program is run
    #[arg(long, default_value_t = 50, value_name = "COUNT")]
    pub rounds: usize,
    /// Take requests as JSON lines from standard input and answer on standard output, for `make bench` and tests
    #[arg(long, hide = true)]
    pub stdio: bool,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Limits (over the profile's)")]
pub struct LimitArguments {
    /// Time from start to end, such as 30s or 500ms
    #[arg(long, value_name = "TIME")]
    wall: Option<Span>,
    /// CPU time of all its processes together
    #[arg(long, value_name = "TIME")]
    cpu_time: Option<Span>,
    /// Cores' worth of CPU, such as 0.5 or 2
    #[arg(long, value_name = "CORES")]
    cpus: Option<Cores>,
    /// Memory of all its processes and files together, such as 1GiB
    #[arg(long, value_name = "SIZE")]
    memory: Option<ByteSize>,
    /// Swap beyond that
    #[arg(long, value_name = "SIZE")]
    swap: Option<ByteSize>,
    /// Processes and threads at one time
    #[arg(long, value_name = "COUNT")]
    pids: Option<u64>,
    /// Bytes in all its files together
    #[arg(long, value_name = "SIZE")]
    disk: Option<ByteSize>,
    /// Files and folders
    #[arg(long, value_name = "COUNT")]
    files: Option<u64>,
    /// Bytes kept of stdout, and of stderr; the middle of longer output is dropped
    #[arg(long, value_name = "SIZE")]
    output: Option<ByteSize>,
    /// Open files per process
    #[arg(long, value_name = "COUNT")]
    nofile: Option<u64>,
    /// Bytes read from disk per second
    #[arg(long, value_name = "SIZE")]
    io: Option<ByteSize>,
}

impl LimitArguments {
    pub fn patch(&self) -> LimitsPatch {
        LimitsPatch {
            wall: self.wall,
            cpu_time: self.cpu_time,
            cpus: self.cpus,
            memory: self.memory,
            swap: self.swap,
            pids: self.pids,
            disk: self.disk,
            files: self.files,
            output: self.output,
            nofile: self.nofile,
            io: self.io,
        }
    }
}

#[derive(Debug, Args)]
pub struct SetupArguments {
    /// Prepare everything again, even if it is up to date
    #[arg(long)]
    pub force: bool,
    /// The Python to build on; must be below /usr [default: /usr/bin/python3]
    #[arg(long, value_name = "PATH")]
    pub python: Option<PathBuf>,
    /// As root: let this user (a name or uid) make cgroups, so that they can run without root. Lasts until reboot
    #[arg(long, value_name = "USER")]
    pub delegate: Option<String>,
}

#[derive(Debug, Args)]
pub struct DoctorArguments {
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,
}
