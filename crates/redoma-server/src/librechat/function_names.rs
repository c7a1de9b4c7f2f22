//! What a chat's tools are called inside a program: names that its language takes. The client makes the same names, to tell
//! its model what to write.

/// What may not be a function's name in Python.
const PYTHON: &str = "False None True and as assert async await break class continue def del elif else except finally for \
                      from global if import in is lambda nonlocal not or pass raise return try while with yield";
/// The same in bash.
const BASH: &str = "if then else elif fi case esac for while until do done in function time coproc select \
                    break cd continue eval exec exit export false kill printf pwd read return set shift test trap true \
                    type unset wait echo source local declare alias builtin __redoma_call";

/// The name of a tool's function in a program of this language.
pub(super) fn function_name(tool: &str, language: &str) -> String {
    let is_bash = language == "bash";
    let mut name = String::with_capacity(tool.len());
    for letter in tool.chars() {
        match letter {
            '-' | ' ' => name.push('_'),
            '.' if is_bash => name.push('_'),
            letter if letter.is_ascii_alphanumeric() || letter == '_' => name.push(letter),
            _ => {}
        }
    }
    if name.starts_with(|letter: char| letter.is_ascii_digit()) {
        name.insert(0, '_');
    }
    let reserved = if is_bash { BASH } else { PYTHON };
    if reserved.split_whitespace().any(|word| word == name) {
        name.push_str("_tool");
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_the_client_tells_its_model() {
        assert_eq!(function_name("get-weather now", "py"), "get_weather_now");
        assert_eq!(function_name("a.b", "py"), "ab");
        assert_eq!(function_name("a.b", "bash"), "a_b");
        assert_eq!(function_name("2fa", "py"), "_2fa");
        assert_eq!(function_name("import", "py"), "import_tool");
        assert_eq!(function_name("done", "bash"), "done_tool");
        assert_eq!(function_name("na\u{ef}ve;rm -rf", "bash"), "naverm__rf");
    }
}
