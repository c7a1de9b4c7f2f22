//! Tools as functions in bash.
//!
//! They come in the environment, as bash itself exports functions: so the script is the caller's, line by line, and bash
//! programs that it starts have the functions too. Before the script's own bash another one runs for a moment, that puts
//! three descriptors in place: the answers, which came as standard input; the script's own standard output, for
//! [frames](crate::frames), since a function's may be a pipe or a variable; and a pipe with one line in it, the number of the
//! next call. Who has taken that line out has the turn; others wait, so that calls from several processes don't mix.

use crate::program::Invocation;
use crate::tools::{Dialect, Tools};

/// Beyond those that scripts count on, and below 64, which is as far as all of them are sure to have.
const PLACES: &str = "exec 49<&0 0</dev/null 50>&1 51<> <(:); echo 1 >&51; exec \"$0\" \"$@\"";

/// What every function does: `FUNCTION [JSON]`. In a subshell, for nothing of it to be left with the script; the turn is given
/// back also by one that is ended. `builtin`, since a tool may have any name.
const CALL: &str = r#"() { (
builtin set +eux
if [[ $# -gt 2 ]]; then
  builtin printf '%s: takes one argument, a JSON object; put it into quotes\n' "$1" >&2
  builtin exit 2
fi
text=${2-} backslash=\\ quote=\"
[[ $text ]] || text='{}'
text=${text//"$backslash"/"$backslash$backslash"}
text=${text//"$quote"/"$backslash$quote"}
text=${text//[[:cntrl:]]/ }
IFS= builtin read -r number <&51 || builtin exit 1
builtin trap 'builtin echo "$((number + 1))" >&51' EXIT
builtin trap 'builtin exit 129' HUP
builtin trap 'builtin exit 130' INT
builtin trap 'builtin exit 143' TERM
builtin printf -v id 'call_%03d' "$number"
builtin printf '\036%s{"call":{"id":"%s","tool":"%s","input":"%s"}}\n' NONCE "$id" "$1" "$text" >&50
while IFS= builtin read -r line <&49; do
  [[ ${line%% *} = "$id" ]] || builtin continue
  line=${line#* }
  case ${line%% *} in
    0) builtin printf '%b' "${line#* }" ;;
    *) builtin printf '%b\n' "${line#* }" >&2 ;;
  esac
  builtin exit "${line%% *}"
done
builtin echo "$1: there is no answer" >&2
builtin exit 1
) }"#;

/// The same program with these functions.
pub(crate) fn with_tools(program: Invocation, tools: &Tools, nonce: &str) -> Invocation {
    tools.speak(Dialect::Shell);
    let Invocation { path, argv, mut environment } = program;
    environment.push(("BASH_FUNC___redoma_call%%".to_owned(), CALL.replace("NONCE", nonce)));
    for name in tools.names() {
        let body = format!("() {{ __redoma_call {name} \"$@\"; }}");
        environment.push((format!("BASH_FUNC_{name}%%"), body));
    }
    let mut outer = vec![path.clone(), "-c".to_owned(), PLACES.to_owned()];
    outer.extend(argv);
    Invocation { path, argv: outer, environment }
}
