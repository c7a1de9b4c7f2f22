//! What the readers make of a text on standard input: `cargo run -p redoma-policy --example facts -- bash`

#![expect(clippy::print_stdout, reason = "it is what an example is for")]

use std::io::Read;

use redoma_policy::facts::Language;

fn main() -> std::io::Result<()> {
    let language = match std::env::args().nth(1).as_deref() {
        Some("bash") => Language::Bash,
        Some("js") => Language::JavaScript,
        Some("ts") => Language::TypeScript,
        _ => Language::Python,
    };
    let mut code = String::new();
    std::io::stdin().read_to_string(&mut code)?;
    for fact in redoma_policy::read(language, &code) {
        println!("{}:{} depth {} {:?}", fact.at.line, fact.at.column, fact.depth, fact.what);
    }
    Ok(())
}
