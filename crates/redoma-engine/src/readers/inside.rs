//! A reader from the inside: text in, facts out, until nobody asks any more. It does once what may take files or other calls,
//! gives up everything, and says that it is ready.

use std::io::{self, Read, Write};

use redoma_policy::facts::Language;

const LANGUAGES: [Language; 4] =
    [Language::Python, Language::JavaScript, Language::TypeScript, Language::Bash];

pub(super) fn number_of(language: Language) -> u8 {
    LANGUAGES
        .iter()
        .position(|known| *known == language)
        .and_then(|at| u8::try_from(at).ok())
        .unwrap_or(u8::MAX)
}

/// A reader's life. Comes back at its end.
pub fn be_reader() -> io::Result<()> {
    let _ = rustix::thread::set_name(c"redoma-reader");
    // What is looked up on first use (the stack's bounds, tables) is looked up now.
    for language in LANGUAGES {
        let _ = redoma_policy::read(language, "x = [1]\n");
    }
    // A text that a parser panics over is told by the parser's own wrapper; nobody listens here.
    std::panic::set_hook(Box::new(|_| {}));
    redoma_jail::recluse::withdraw().map_err(io::Error::other)?;
    let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
    output.write_all(b"r")?;
    output.flush()?;
    loop {
        let mut head = [0u8; 5];
        match input.read_exact(&mut head) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        }
        let [a, b, c, d, language] = head;
        let mut code = vec![0u8; u32::from_le_bytes([a, b, c, d]) as usize];
        input.read_exact(&mut code)?;
        let language = LANGUAGES.get(usize::from(language)).copied().ok_or(io::ErrorKind::InvalidData)?;
        let facts = redoma_policy::read(language, &String::from_utf8_lossy(&code));
        let said = serde_json::to_vec(&facts).map_err(io::Error::other)?;
        let length = u32::try_from(said.len()).map_err(io::Error::other)?;
        output.write_all(&length.to_le_bytes())?;
        output.write_all(&said)?;
        output.flush()?;
    }
}
