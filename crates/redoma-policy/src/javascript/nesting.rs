//! How deep a JavaScript or TypeScript text is nested at most, told without parsing it.
//!
//! Each operator, keyword and open bracket can be one level of the syntax tree around what comes next. Commas and ends of
//! statements close levels, brackets keep what is outside of them.
//!
//! The text is taken apart by hand, and one thing can't be told that way in all cases: whether `/` begins a regular
//! expression or divides. Where it is in doubt, or brackets don't match, the bound is the plainest one: all that could
//! nest in the whole text.
//!
//! Depth is not all. The parser guesses whether `(` opens an arrow function's parameters and `<` a type, and reads again
//! when it guessed wrong; inside of each other that costs more than its length. So that is added up too, and bounded.

/// What came before, as far as it matters for what may come next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    /// An operator, an open bracket, or nothing.
    Operator,
    /// A keyword that something must follow: `return`, `typeof`, `else`.
    Keyword,
    /// Words like `await` or `of`, which may be names as well.
    Either,
    /// A name, a literal, or a closing bracket: something that an operator can follow.
    Operand,
    /// `)` of `if (…)` and the like: a statement follows.
    Condition,
    /// `}`, of a block or of an object.
    Brace,
    /// A dot: what follows is a name even if it looks like a keyword.
    Dot,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Bracket {
    Whole,
    Parenthesis {
        is_condition: bool,
    },
    Square,
    Brace,
    Template,
    /// `${…}`
    Field,
}

struct Frame {
    bracket: Bracket,
    /// Ended by a comma.
    operators: usize,
    /// Not ended by one: `if (a) b, c; else if …`, `A<b, A<b, …`.
    lasting: usize,
    /// Open `<` of types, which `>` closes.
    angles: usize,
}

impl Frame {
    fn new(bracket: Bracket) -> Self {
        Self { bracket, operators: 0, lasting: 0, angles: 0 }
    }

    fn levels(&self) -> usize {
        self.operators + self.lasting + self.angles
    }
}

struct Scan<'a> {
    text: &'a [u8],
    at: usize,
    frames: Vec<Frame>,
    /// Levels in all frames.
    now: usize,
    most: usize,
    before: Before,
    /// The last word, if it was one.
    word: (usize, usize),
    is_new_line: bool,
    /// A statement has ended, but `else` may go on with it.
    is_ended: bool,
    is_in_doubt: bool,
    /// How many parentheses are open.
    parentheses: usize,
    /// What guessing costs: the squares of open parentheses, and open `<`.
    guesses: (usize, usize),
}

/// Beyond this nothing is parsed.
pub(super) const MAX_DEPTH: usize = 2000;

/// An upper bound, or more than [`MAX_DEPTH`] if parsing would take too long.
pub(super) fn depth(code: &str) -> usize {
    let mut scan = Scan {
        text: code.as_bytes(),
        at: 0,
        frames: vec![Frame::new(Bracket::Whole)],
        now: 0,
        most: 0,
        before: Before::Operator,
        word: (0, 0),
        is_new_line: true,
        is_ended: false,
        is_in_doubt: false,
        parentheses: 0,
        guesses: (0, 0),
    };
    if code.starts_with("#!") {
        scan.skip_line();
    }
    while scan.at < scan.text.len() && !scan.is_in_doubt {
        scan.step();
        scan.most = scan.most.max(scan.now);
    }
    if scan.is_in_doubt {
        return total(code);
    }
    let (parentheses, angles) = scan.guesses;
    let is_slow = parentheses > 2_000_000 + 20 * code.len() || angles > 20_000 + code.len() / 4;
    if is_slow { usize::MAX } else { scan.most }
}

/// All that could nest in the text, whatever it is.
pub(super) fn total(code: &str) -> usize {
    let occurs = |sought: u8| code.bytes().filter(|&byte| byte == sought).count();
    if occurs(b'(') > 400 || occurs(b'<') > 300 {
        return usize::MAX;
    }
    let mut is_word = false;
    let mut count = 0;
    for byte in code.bytes() {
        let (was_word, now_word) =
            (is_word, byte.is_ascii_alphanumeric() || byte >= 0x80 || b"_$".contains(&byte));
        is_word = now_word;
        let counts = match byte {
            b' ' | b'\t' | b'\r' | b'\n' | b',' | b';' | b')' | b']' | b'}' | b'"' | b'\'' => false,
            _ if now_word => !was_word && byte.is_ascii_lowercase(),
            _ => true,
        };
        count += usize::from(counts);
    }
    count
}

impl Scan<'_> {
    fn step(&mut self) {
        if let Some(Frame { bracket: Bracket::Template, .. }) = self.frames.last() {
            return self.template();
        }
        let byte = self.text[self.at];
        match byte {
            b'\n' => {
                self.is_new_line = true;
                self.at += 1;
            }
            b' ' | b'\t' | b'\r' | 0x0b | 0x0c => self.at += 1,
            b'/' if self.peek(1) == b'/' => self.skip_line(),
            b'/' if self.peek(1) == b'*' => self.skip_comment(),
            _ => {
                self.end_statement(byte);
                self.token(byte);
                self.is_new_line = false;
            }
        }
    }

    fn token(&mut self, byte: u8) {
        match byte {
            b'"' | b'\'' => {
                self.skip_string(byte);
                self.before = Before::Operand;
            }
            b'`' => {
                self.open(Bracket::Template);
                self.at += 1;
            }
            b'/' => self.slash(),
            b'(' => {
                let is_condition = self.before == Before::Keyword && self.is_conditional_word();
                self.open(Bracket::Parenthesis { is_condition });
                self.parentheses += 1;
                self.guesses.0 = self.guesses.0.saturating_add(self.parentheses * self.parentheses);
                self.at += 1;
            }
            b'[' => {
                self.open(Bracket::Square);
                self.at += 1;
            }
            b'{' => {
                self.open(Bracket::Brace);
                self.at += 1;
            }
            b')' | b']' | b'}' => self.close(byte),
            b',' => {
                // Between types, what is around them goes on.
                if self.frame().angles == 0 {
                    self.reset(Reset::Operators);
                }
                self.before = Before::Operator;
                self.at += 1;
            }
            b';' => {
                self.reset(Reset::Operators);
                self.before = Before::Operator;
                self.is_ended = true;
                self.at += 1;
            }
            _ if is_word(byte) => self.read_word(),
            _ => self.operator(byte),
        }
    }

    fn peek(&self, by: usize) -> u8 {
        self.text.get(self.at + by).copied().unwrap_or(0)
    }

    fn frame(&mut self) -> &mut Frame {
        self.frames.last_mut().expect("the whole text's frame is never closed")
    }

    fn reset(&mut self, which: Reset) {
        let levels = self.frame().levels();
        let frame = self.frame();
        frame.operators = 0;
        if which == Reset::All {
            frame.lasting = 0;
            frame.angles = 0;
        }
        self.now -= levels - self.frame().levels();
    }

    fn count(&mut self) {
        self.frame().operators += 1;
        self.now += 1;
    }

    /// A statement that has ended, by `;`, `}` or a line's end, closes all levels unless what comes goes on with it.
    fn end_statement(&mut self, byte: u8) {
        let begins_word = is_word(byte) || byte == b'@';
        let is_end = self.is_ended
            || begins_word && self.before == Before::Brace
            || begins_word && self.is_new_line && self.before == Before::Operand;
        self.is_ended = false;
        if is_end && !(begins_word && self.goes_on()) {
            self.reset(Reset::All);
        }
    }

    /// Whether the word that begins here goes on with what was before.
    fn goes_on(&self) -> bool {
        let word = self.word_at(self.at);
        matches!(
            word,
            b"else"
                | b"in"
                | b"of"
                | b"instanceof"
                | b"as"
                | b"satisfies"
                | b"extends"
                | b"implements"
                | b"is"
                | b"while"
        )
    }

    fn word_at(&self, at: usize) -> &[u8] {
        let rest = &self.text[at..];
        &rest[..rest.iter().position(|&byte| !is_word(byte)).unwrap_or(rest.len())]
    }

    fn is_conditional_word(&self) -> bool {
        matches!(&self.text[self.word.0..self.word.1], b"if" | b"while" | b"for" | b"with")
    }

    fn read_word(&mut self) {
        let (start, length) = (self.at, self.word_at(self.at).len());
        self.at += length;
        let word = &self.text[start..self.at];
        // Spaces beyond ASCII would be taken for letters.
        let is_odd = |character: char| character.is_whitespace() || character == '\u{feff}';
        if !word.is_ascii() && std::str::from_utf8(word).map_or(true, |word| word.contains(is_odd)) {
            self.is_in_doubt = true;
        }
        if self.before == Before::Dot {
            self.before = Before::Operand;
            return;
        }
        // `for await (…)` is a `for`.
        if word == b"await"
            && &self.text[self.word.0..self.word.1] == b"for"
            && self.before == Before::Keyword
        {
            return;
        }
        let was_after = self.before;
        self.word = (start, self.at);
        self.before = match word {
            // What a class extends goes on over commas.
            b"if" | b"else" | b"for" | b"while" | b"do" | b"with" | b"class" | b"extends" => {
                self.frame().lasting += 1;
                self.now += 1;
                Before::Keyword
            }
            b"case" | b"default" if was_after != Before::Operand => {
                if self.frame().bracket == Bracket::Brace && was_after == Before::Operator {
                    self.reset(Reset::All);
                }
                Before::Keyword
            }
            b"return" | b"throw" | b"typeof" | b"void" | b"delete" | b"new" | b"in" | b"instanceof"
            | b"function" | b"import" | b"export" | b"const" | b"var" | b"enum" => {
                self.count();
                Before::Keyword
            }
            b"await" | b"yield" | b"of" | b"as" | b"is" | b"satisfies" | b"keyof" | b"readonly"
            | b"unique" | b"infer" | b"asserts" | b"async" | b"let" | b"type" | b"abstract" | b"declare"
            | b"namespace" | b"module" | b"implements" | b"static" | b"get" | b"set" => {
                self.count();
                Before::Either
            }
            _ => Before::Operand,
        };
    }

    fn operator(&mut self, byte: u8) {
        self.count();
        let was = self.before;
        self.at += 1;
        self.before = Before::Operator;
        match byte {
            b'.' if self.text.get(self.at) != Some(&b'.') => self.before = Before::Dot,
            // `a++ / b`; but `++` before a name is an operator.
            b'+' | b'-' if self.peek(0) == byte => {
                self.at += 1;
                // `-->` and `<!--` are comments in some grammars.
                self.is_in_doubt |= self.peek(0) == b'>';
                if matches!(was, Before::Operand) {
                    self.before = Before::Operand;
                }
            }
            // `a!` of TypeScript.
            b'!' if was == Before::Operand && self.peek(0) != b'=' => self.before = Before::Operand,
            b'<' if self.text[self.at..].starts_with(b"!--") => self.is_in_doubt = true,
            // `<T>x` is around `x` as `-x` is, also after its `>`.
            b'<' if was != Before::Operand => {
                self.frame().angles += 1;
                self.now += 1;
                self.guesses.1 += self.frame().angles;
            }
            b'<' => {
                self.frame().operators -= 1;
                self.frame().angles += 1;
                self.guesses.1 += self.frame().angles;
            }
            b'=' if self.peek(0) == b'>' => self.at += 1,
            b'>' if self.frame().angles > 0 => {
                // Together they stay one level: `<a><b>c` asserts a type of what follows.
                self.frame().angles -= 1;
                self.now -= 1;
                self.before = Before::Either;
            }
            _ => {}
        }
    }

    fn slash(&mut self) {
        match self.before {
            Before::Operand | Before::Dot => self.operator(b'/'),
            Before::Operator | Before::Keyword | Before::Condition => {
                self.skip_regular_expression();
                self.before = Before::Operand;
            }
            Before::Either | Before::Brace => self.is_in_doubt = true,
        }
    }

    fn open(&mut self, bracket: Bracket) {
        // Beside being around something, they can follow each other: `f()()()`.
        self.count();
        self.frames.push(Frame::new(bracket));
        self.before = Before::Operator;
    }

    fn close(&mut self, byte: u8) {
        let bracket = self.frame().bracket;
        let (fits, before) = match (byte, bracket) {
            (b')', Bracket::Parenthesis { is_condition: true }) => (true, Before::Condition),
            (b')', Bracket::Parenthesis { is_condition: false }) | (b']', Bracket::Square) => {
                (true, Before::Operand)
            }
            (b'}', Bracket::Brace | Bracket::Field) => (true, Before::Brace),
            _ => (false, Before::Operator),
        };
        if !fits {
            self.is_in_doubt = true;
            return;
        }
        let closed = self.frames.pop().map_or(0, |frame| frame.levels());
        self.now -= closed;
        self.parentheses -= usize::from(byte == b')');
        self.before = before;
        self.is_ended = false;
        self.at += 1;
    }

    /// Text between backticks.
    fn template(&mut self) {
        while let Some(&byte) = self.text.get(self.at) {
            match byte {
                b'\\' => self.at += 2,
                b'`' => {
                    let closed = self.frames.pop().map_or(0, |frame| frame.levels());
                    self.now -= closed;
                    self.before = Before::Operand;
                    self.at += 1;
                    return;
                }
                b'$' if self.peek(1) == b'{' => {
                    self.open(Bracket::Field);
                    self.at += 2;
                    return;
                }
                _ => self.at += 1,
            }
        }
    }

    fn skip_line(&mut self) {
        let rest = &self.text[self.at..];
        // Other ends of lines than these are rare, and in doubt.
        let length = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')).unwrap_or(rest.len());
        let is_odd = rest[..length].windows(3).any(|bytes| matches!(bytes, [0xe2, 0x80, 0xa8 | 0xa9]));
        self.is_in_doubt |= is_odd;
        self.at += length;
    }

    fn skip_comment(&mut self) {
        let rest = &self.text[self.at + 2..];
        let length = rest.windows(2).position(|bytes| bytes == b"*/").unwrap_or(rest.len());
        self.is_new_line |= rest[..length].contains(&b'\n');
        self.at = (self.at + length + 4).min(self.text.len());
    }

    fn skip_string(&mut self, quote: u8) {
        self.at += 1;
        while let Some(&byte) = self.text.get(self.at) {
            match byte {
                b'\\' => self.at += if self.peek(1) == b'\r' && self.peek(2) == b'\n' { 3 } else { 2 },
                // The parser will not go beyond this.
                b'\n' | b'\r' => {
                    self.is_in_doubt = true;
                    return;
                }
                _ => {
                    self.at += 1;
                    if byte == quote {
                        return;
                    }
                }
            }
        }
    }

    fn skip_regular_expression(&mut self) {
        self.at += 1;
        let mut is_in_class = false;
        while let Some(&byte) = self.text.get(self.at) {
            self.at += 1;
            match byte {
                b'\\' => self.at += 1,
                b'[' => is_in_class = true,
                b']' => is_in_class = false,
                b'/' if !is_in_class => return,
                b'\n' | b'\r' => {
                    self.is_in_doubt = true;
                    return;
                }
                _ => {}
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Reset {
    Operators,
    All,
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte >= 0x80 || matches!(byte, b'_' | b'$' | b'#' | b'\\')
}

#[cfg(test)]
mod tests {
    use super::depth;

    #[test]
    fn commas_and_statements_end_what_is_nested() {
        for piece in [
            "x = 1 + 2;\n",
            "x = a.b.c\n",
            "function f(a, b) { return a + b }\n",
            "if (x) { y() } else { z() }\n",
            "if (x) y\n",
            "case 1: break;\n",
            "const { a, b } = c\n",
            "x = a / b / c\ny = `${a}/${b}`\n",
            "if (/[(]/.test(x)) y()\n",
            "// it's ((((\n",
            "/* `(( */\n",
            "x = y++ / 2\n",
            "for (const x of y) z(x)\n",
        ] {
            let depth = depth(&piece.repeat(1000));
            assert!(depth < 40, "{piece}: {depth}");
        }
        assert!(depth(&format!("x = [{}]", "-1, ".repeat(1000))) < 5);
        assert!(depth(&"const x: Map<string, Array<number>> = new Map<string, A>()\n".repeat(1000)) < 40);
        assert!(depth(&format!("x = [{}]", "new Map<a, b>(), ".repeat(1000))) < 20);
    }

    #[test]
    fn what_nests_is_counted() {
        for piece in [
            "(",
            "[",
            "{",
            "!",
            "typeof ",
            "a.",
            "1+",
            "a => ",
            "(a, b) => ",
            "a ? b : ",
            "`${",
            "[0, ",
            "if (a) ",
            "if (a)\n",
            "if (a) b, c; else ",
            "if (a) {} else ",
            "do\n",
            "a = ",
            "new ",
            "for (;;) ",
            "while (a) ",
            "l: ",
            "a ? /[/\"]/ : ",
            "x = {} / 1 /",
            "keyof\n",
            "} /`/ (",
            "\n.default",
            "class extends ",
            "<A<x, y>>",
        ] {
            let depth = depth(&piece.repeat(500));
            assert!(depth >= 500, "{piece}: {depth}");
        }
        assert!(depth(&format!("x = f{}", "()".repeat(500))) >= 500);
        assert!(depth(&"A<x, ".repeat(500)) >= 500);
    }
}
