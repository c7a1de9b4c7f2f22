//! How deep a Python text is nested at most, told from its tokens without parsing it.
//!
//! Each operator, keyword and open bracket can be one level of the syntax tree around what comes next. Commas and ends of
//! statements close levels, brackets keep what is outside of them. The lexer is the parser's own and does not recurse.

use ruff_python_ast::token::TokenKind;
use ruff_python_parser::Mode;
use ruff_python_parser::lexer::lex;

/// Levels within one pair of brackets.
#[derive(Default)]
struct Frame {
    /// Ended by a comma.
    operators: usize,
    /// Not ended by one: `lambda a, b: lambda a, b: …`.
    lasting: usize,
}

/// An upper bound, for a text that is parsed in this mode: what is a single token in one is an expression in the other.
pub(super) fn depth(code: &str, mode: Mode) -> usize {
    let mut lexer = lex(code, mode);
    let mut frames = vec![Frame::default()];
    let (mut now, mut most) = (0_usize, 0_usize);
    loop {
        let kind = lexer.next_token();
        let Some(frame) = frames.last_mut() else { break };
        match kind {
            TokenKind::EndOfFile => break,
            TokenKind::Newline => {
                frames.truncate(1);
                frames[0] = Frame::default();
                now = 0;
            }
            TokenKind::Semi | TokenKind::Comma => {
                now -= frame.operators;
                frame.operators = 0;
            }
            TokenKind::Lpar
            | TokenKind::Lsqb
            | TokenKind::Lbrace
            | TokenKind::FStringStart
            | TokenKind::TStringStart => {
                // Beside being around something, they can follow each other: `f()()()`.
                frame.operators += 1;
                now += 1;
                frames.push(Frame::default());
            }
            TokenKind::Rpar
            | TokenKind::Rsqb
            | TokenKind::Rbrace
            | TokenKind::FStringEnd
            | TokenKind::TStringEnd => {
                if frames.len() > 1
                    && let Some(closed) = frames.pop()
                {
                    now -= closed.operators + closed.lasting;
                }
            }
            TokenKind::Lambda
            | TokenKind::Async
            | TokenKind::Class
            | TokenKind::Def
            | TokenKind::While
            | TokenKind::With => {
                frame.lasting += 1;
                now += 1;
            }
            TokenKind::Name
            | TokenKind::Int
            | TokenKind::Float
            | TokenKind::Complex
            | TokenKind::String
            | TokenKind::FStringMiddle
            | TokenKind::TStringMiddle
            | TokenKind::Comment
            | TokenKind::NonLogicalNewline
            | TokenKind::Indent
            | TokenKind::Dedent => {}
            _ => {
                frame.operators += 1;
                now += 1;
            }
        }
        most = most.max(now);
    }
    most + deepest_column(code)
}

/// Blocks are at least one column deeper than the block around them. All lines count, also those in brackets: a parser
/// that recovers from an error can take them for blocks.
fn deepest_column(code: &str) -> usize {
    let indentation =
        |line: &str| line.bytes().take_while(|byte| matches!(byte, b' ' | b'\t' | 0x0c)).count();
    code.split(['\n', '\r']).map(indentation).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use ruff_python_parser::Mode;

    fn depth(code: &str) -> usize {
        super::depth(code, Mode::Ipython)
    }

    #[test]
    fn commas_and_lines_end_what_is_nested() {
        assert!(depth(&"x = 1 + 2\n".repeat(1000)) < 5);
        assert!(depth(&format!("x = [{}]", "-1, ".repeat(1000))) < 5);
        assert!(depth(&format!("x = [{}]", "'a' 'b',\n".repeat(1000))) < 5);
    }

    #[test]
    fn what_nests_is_counted() {
        for piece in ["(", "not ", "-", "a.", "1+", "lambda a, b: ", "a if b else ", "f'{", "[0, ", "{1: "] {
            assert!(depth(&piece.repeat(500)) >= 500, "{piece}");
        }
        assert!(depth(&format!("f{}", "()".repeat(500))) >= 500);
        let blocks = (0..500).fold(String::new(), |text, level| text + &" ".repeat(level) + "if x:\n");
        assert!(depth(&blocks) >= 499);
    }
}
