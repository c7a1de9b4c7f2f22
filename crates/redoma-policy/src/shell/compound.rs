//! Commands that hold commands: groups, conditions, loops, `case`, functions and tests.

use smallvec::smallvec;

use super::parse::Parser;
use super::tree::{Node, Offset, Part, Simple, Word};
use crate::facts::Text;

impl Parser<'_> {
    pub(super) fn parenthesis(&mut self) -> Node {
        if self.peek_at(1) == Some(b'(') && self.is_arithmetic(self.at + 2) {
            let at = self.offset();
            self.at += 2;
            let parts = self.arithmetic();
            let word = Word { at, parts: smallvec![Part::Arithmetic(parts.into_vec())] };
            let words = vec![Word { at, parts: smallvec![Part::Bare("let".into())] }, word];
            return Node::Simple(Simple {
                at,
                words,
                redirections: self.redirections(),
                ..Simple::default()
            });
        }
        self.at += 1;
        let body = self.list(&[]);
        self.close(b')');
        Node::Subshell(body, self.redirections())
    }

    pub(super) fn block(&mut self) -> Node {
        self.at += 1;
        let body = self.list(&["}"]);
        self.expect("}");
        Node::Block(body, self.redirections())
    }

    pub(super) fn if_block(&mut self) -> Node {
        self.at += 2;
        let mut body = self.list(&["then"]);
        if self.expect("then") {
            loop {
                body.extend(self.list(&["elif", "else", "fi"]));
                match self.bare_word() {
                    word @ ("elif" | "else" | "then") => self.at += word.len(),
                    _ => break,
                }
            }
            self.expect("fi");
        }
        Node::Block(body, self.redirections())
    }

    pub(super) fn while_loop(&mut self) -> Node {
        let at = self.offset();
        let keyword = self.bare_word();
        self.at += keyword.len();
        let mut body = self.list(&["do"]);
        let first = match body.as_slice() {
            [Node::Simple(simple)] => match simple.words.as_slice() {
                [word] => word.bare().unwrap_or_default(),
                [test, one, end] if test.bare() == Some("[") && end.bare() == Some("]") => {
                    one.bare().unwrap_or_default()
                }
                [test, one, ..]
                    if test.bare() == Some("let") && matches!(one.parts[..], [Part::Arithmetic(_)]) =>
                {
                    "1"
                }
                _ => "",
            },
            _ => "",
        };
        let endless = if keyword == "until" { first == "false" } else { matches!(first, "true" | ":" | "1") };
        body.extend(self.do_group());
        Node::Loop { body, redirections: self.redirections(), endless, at }
    }

    fn do_group(&mut self) -> Vec<Node> {
        self.skip_newlines();
        if self.bare_word() == "{" {
            self.at += 1;
            let body = self.list(&["}"]);
            self.expect("}");
            return body;
        }
        if !self.expect("do") {
            return Vec::new();
        }
        let body = self.list(&["done"]);
        self.expect("done");
        body
    }

    pub(super) fn for_loop(&mut self) -> Node {
        let at = self.offset();
        self.at += self.bare_word().len();
        self.skip_blanks();
        if self.looking_at("((") {
            self.at += 2;
            let start = self.at;
            let parts = self.arithmetic();
            let header = self.text.get(start..self.at).unwrap_or_default();
            let endless = header.replace([' ', ')'], "") == ";;";
            let word = Word { at, parts: smallvec![Part::Arithmetic(parts.into_vec())] };
            let words = vec![Word { at, parts: smallvec![Part::Bare("let".into())] }, word];
            let mut body = vec![Node::Simple(Simple { at, words, ..Simple::default() })];
            self.skip_separator();
            body.extend(self.do_group());
            return Node::Loop { body, redirections: self.redirections(), endless, at };
        }
        let variable: Text = self.bare_word().into();
        self.at += variable.len();
        self.skip_newlines();
        let mut words = Vec::new();
        if self.bare_word() == "in" {
            self.at += 2;
            loop {
                self.skip_blanks();
                match self.word() {
                    Some(word) => words.push(word),
                    None => break,
                }
            }
        }
        self.skip_separator();
        let body = self.do_group();
        Node::For { variable, words, body, redirections: self.redirections() }
    }

    fn skip_separator(&mut self) {
        self.skip_blanks();
        if self.peek() == Some(b';') {
            self.at += 1;
        }
    }

    pub(super) fn case(&mut self) -> Node {
        let at = self.offset();
        self.at += "case".len();
        self.skip_blanks();
        let subject = self.word();
        // The words are only looked at for what is substituted in them.
        let mut words = vec![Word { at, parts: smallvec![Part::Bare(":".into())] }];
        words.extend(subject);
        let mut body = Vec::new();
        if self.expect("in") {
            loop {
                self.skip_newlines();
                if self.bare_word() == "esac" || self.peek().is_none() {
                    break;
                }
                let before = self.at;
                self.patterns(&mut words);
                body.extend(self.list(&["esac"]));
                self.skip_newlines();
                if self.peek() == Some(b';') {
                    self.at += 1;
                    while matches!(self.peek(), Some(b';' | b'&')) {
                        self.at += 1;
                    }
                } else if self.bare_word() != "esac" || self.at == before {
                    break;
                }
            }
            self.expect("esac");
        }
        body.insert(0, Node::Simple(Simple { at, words, ..Simple::default() }));
        Node::Block(body, self.redirections())
    }

    /// `(one|two)`, the first parenthesis may be missing.
    fn patterns(&mut self, words: &mut Vec<Word>) {
        if self.peek() == Some(b'(') {
            self.at += 1;
        }
        loop {
            self.skip_blanks();
            words.extend(self.word());
            self.skip_blanks();
            match self.peek() {
                Some(b'|') => self.at += 1,
                Some(b')') => {
                    self.at += 1;
                    return;
                }
                _ => {
                    self.trouble();
                    return;
                }
            }
        }
    }

    pub(super) fn function(&mut self) -> Option<Node> {
        let at = self.offset();
        self.at += "function".len();
        self.skip_blanks();
        let name: Text = self.bare_word().into();
        self.at += name.len();
        self.skip_blanks();
        if self.peek() == Some(b'(') {
            self.at += 1;
            self.close(b')');
        }
        self.function_body(name, at)
    }

    pub(super) fn function_body(&mut self, name: Text, at: Offset) -> Option<Node> {
        self.skip_newlines();
        let body = self.compound(Parser::command)?;
        Some(Node::Function { name, body: Box::new(body), at })
    }

    /// `[[ … ]]`: everything up to the end is a word, also `<`, `(` and `&&`.
    pub(super) fn test(&mut self) -> Node {
        let at = self.offset();
        self.at += 2;
        let mut words = vec![Word { at, parts: smallvec![Part::Bare("[[".into())] }];
        loop {
            self.skip_newlines();
            let before = self.at;
            let is_end = matches!(
                self.peek_at(2),
                None | Some(b' ' | b'\t' | b'\r' | b'\n' | b';' | b'&' | b'|' | b')')
            );
            if self.looking_at("]]") && is_end {
                self.at += 2;
                break;
            }
            words.extend(self.test_word());
            if self.at == before {
                self.trouble();
                break;
            }
        }
        Node::Simple(Simple { at, words, redirections: self.redirections(), ..Simple::default() })
    }
}
