//! Text to tree.
//!
//! In: the source of an expression. Out: a tree whose nodes know where they start, or errors in the words of cel-go. The tree is
//! never deeper than [`MAX_DEPTH`], so that whoever walks it may recurse. Chains of `&&` and `||` are flat.

use super::names;

/// Deepest tree that is accepted.
pub(crate) const MAX_DEPTH: u16 = 120;
/// Longest source that is read, in characters.
const MAX_SOURCE: usize = 100_000;

/// An expression and the offset, in characters, that errors about it point to.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Expr {
    pub at: usize,
    pub kind: Kind,
    depth: u16,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Kind {
    Null,
    Bool(bool),
    Int(i64),
    UInt(u64),
    Double(f64),
    String(String),
    Bytes(Vec<u8>),
    Ident(String),
    /// `operand.field`, `operand.?field`, `has(operand.field)`
    Select {
        operand: Box<Expr>,
        field: String,
        access: Access,
    },
    /// `operand[index]`, `operand[?index]`
    Index {
        operand: Box<Expr>,
        index: Box<Expr>,
        optional: bool,
    },
    Call {
        target: Option<Box<Expr>>,
        name: String,
        args: Vec<Expr>,
    },
    Not(Box<Expr>),
    Negate(Box<Expr>),
    Binary {
        op: Op,
        left: Box<Expr>,
        right: Box<Expr>,
    },
    And(Vec<Expr>),
    Or(Vec<Expr>),
    Conditional(Box<[Expr; 3]>),
    /// The flag marks an optional entry, `?x`.
    List(Vec<(bool, Expr)>),
    Map(Vec<(bool, Expr, Expr)>),
    /// A macro over the entries of a list or map.
    Loop(Box<Loop>),
    /// `target.optMap(name, body)`, or `optFlatMap` if `flat`
    OptMap {
        target: Box<Expr>,
        name: String,
        body: Box<Expr>,
        flat: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Plain,
    Optional,
    Test,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Loop {
    pub make: Make,
    pub range: Expr,
    pub name: String,
    /// The second variable of a macro with two.
    pub name2: Option<String>,
    pub filter: Option<Expr>,
    pub body: Expr,
}

/// What a loop makes of its entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Make {
    All,
    Exists,
    ExistsOne,
    /// A list of bodies.
    Map,
    /// The entries for which the body is true.
    Filter,
    /// The entries in the order of their bodies.
    SortBy,
    /// A map from the old keys to bodies.
    TransformMap,
    /// A map of the entries of bodies.
    TransformMapEntry,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    In,
}

impl Op {
    /// The name of the operator's function.
    pub(crate) fn function(self) -> &'static str {
        match self {
            Self::Add => "_+_",
            Self::Subtract => "_-_",
            Self::Multiply => "_*_",
            Self::Divide => "_/_",
            Self::Modulo => "_%_",
            Self::Equal => "_==_",
            Self::NotEqual => "_!=_",
            Self::Less => "_<_",
            Self::LessEqual => "_<=_",
            Self::Greater => "_>_",
            Self::GreaterEqual => "_>=_",
            Self::In => "@in",
        }
    }

    /// Higher binds tighter.
    fn strength(self) -> u8 {
        match self {
            Self::Equal
            | Self::NotEqual
            | Self::Less
            | Self::LessEqual
            | Self::Greater
            | Self::GreaterEqual
            | Self::In => 1,
            Self::Add | Self::Subtract => 2,
            Self::Multiply | Self::Divide | Self::Modulo => 3,
        }
    }
}

/// How an expression may start, in the words of the grammar.
const EXPRESSION: &str = "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}";

/// One thing that is wrong with an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Issue {
    pub at: usize,
    pub text: String,
}

/// Issues as cel-go prints them: place, text, the line, and a mark below it.
pub(crate) fn render(source: &str, issues: &[Issue]) -> String {
    let one = |issue: &Issue| {
        let (mut line, mut column, mut start) = (1_usize, 0_usize, 0_usize);
        for (i, c) in source.chars().enumerate().take(issue.at) {
            column += 1;
            if c == '\n' {
                (line, column, start) = (line + 1, 0, i + 1);
            }
        }
        let snippet: String = source.chars().skip(start).take_while(|c| *c != '\n').collect();
        let snippet = snippet.replace('\t', " ");
        format!(
            "ERROR: <input>:{line}:{}: {}\n | {snippet}\n | {}^",
            column + 1,
            issue.text,
            ".".repeat(column)
        )
    };
    issues.iter().map(one).collect::<Vec<_>>().join("\n")
}

/// Reads an expression.
pub(crate) fn parse(source: &str) -> Result<Expr, Issue> {
    let chars: Vec<char> = source.chars().collect();
    if chars.len() > MAX_SOURCE {
        let text =
            format!("expression code point size exceeds limit: size: {}, limit {MAX_SOURCE}", chars.len());
        return Err(Issue { at: 0, text });
    }
    let tokens = Lexer { chars: &chars, at: 0 }.all()?;
    let mut parser = Parser { tokens, next: 0, nesting: 0, end: chars.len() };
    let expr = parser.expr()?;
    match parser.peek() {
        None => Ok(expr),
        Some(_) => Err(parser.unexpected("<EOF>")),
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Word(String),
    Int(String),
    UInt(String),
    Double(f64),
    String(String),
    Bytes(Vec<u8>),
    Sign(&'static str),
}

impl Token {
    fn text(&self) -> String {
        match self {
            Self::Word(w) | Self::Int(w) | Self::UInt(w) => w.clone(),
            Self::Double(d) => d.to_string(),
            Self::String(s) => format!("'{s}'"),
            Self::Bytes(_) => "b''".to_owned(),
            Self::Sign(s) => (*s).to_owned(),
        }
    }
}

/// Longer signs first, so that `<=` is not read as `<`.
const SIGNS: &[&str] = &[
    "==", "!=", "<=", ">=", "&&", "||", "(", ")", "[", "]", "{", "}", ",", ":", "?", ".", "<", ">", "+", "-",
    "*", "/", "%", "!",
];

struct Lexer<'a> {
    chars: &'a [char],
    at: usize,
}

impl Lexer<'_> {
    fn all(mut self) -> Result<Vec<(usize, Token)>, Issue> {
        let mut tokens = Vec::new();
        loop {
            while self.peek(0).is_some_and(|c| matches!(c, ' ' | '\t' | '\n' | '\r' | '\u{c}')) {
                self.at += 1;
            }
            if self.peek(0) == Some('/') && self.peek(1) == Some('/') {
                while self.peek(0).is_some_and(|c| c != '\n') {
                    self.at += 1;
                }
                continue;
            }
            let start = self.at;
            let Some(c) = self.peek(0) else { return Ok(tokens) };
            let token = self.token(c)?;
            tokens.push((start, token));
        }
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn token(&mut self, c: char) -> Result<Token, Issue> {
        if let Some(token) = self.quoted()? {
            return Ok(token);
        }
        if c == '_' || c.is_ascii_alphabetic() {
            let mut word = String::new();
            while let Some(c) = self.peek(0).filter(|c| *c == '_' || c.is_ascii_alphanumeric()) {
                word.push(c);
                self.at += 1;
            }
            return Ok(Token::Word(word));
        }
        let fraction = c == '.' && self.peek(1).is_some_and(|c| c.is_ascii_digit());
        if c.is_ascii_digit() || fraction {
            return self.number();
        }
        for sign in SIGNS {
            if sign.chars().enumerate().all(|(i, c)| self.peek(i) == Some(c)) {
                self.at += sign.len();
                return Ok(Token::Sign(sign));
            }
        }
        Err(self.issue(format!("Syntax error: token recognition error at: '{c}'")))
    }

    fn number(&mut self) -> Result<Token, Issue> {
        let start = self.at;
        if self.peek(0) == Some('0') && matches!(self.peek(1), Some('x' | 'X')) {
            self.at += 2;
            self.digits(|c| c.is_ascii_hexdigit());
        } else {
            self.digits(|c| c.is_ascii_digit());
            let mut float = false;
            if self.peek(0) == Some('.') && self.peek(1).is_some_and(|c| c.is_ascii_digit()) {
                float = true;
                self.at += 1;
                self.digits(|c| c.is_ascii_digit());
            }
            let signed = usize::from(matches!(self.peek(1), Some('+' | '-')));
            if matches!(self.peek(0), Some('e' | 'E'))
                && self.peek(1 + signed).is_some_and(|c| c.is_ascii_digit())
            {
                float = true;
                self.at += 1 + signed;
                self.digits(|c| c.is_ascii_digit());
            }
            if float {
                let text = self.slice(start);
                return text
                    .parse()
                    .map(Token::Double)
                    .map_err(|_| self.issue("invalid double literal".to_owned()));
            }
        }
        let text = self.slice(start);
        if matches!(self.peek(0), Some('u' | 'U')) {
            self.at += 1;
            return Ok(Token::UInt(text));
        }
        Ok(Token::Int(text))
    }

    fn digits(&mut self, ok: impl Fn(char) -> bool) {
        while self.peek(0).is_some_and(&ok) {
            self.at += 1;
        }
    }

    fn slice(&self, start: usize) -> String {
        self.chars.get(start..self.at).unwrap_or_default().iter().collect()
    }

    /// A string or bytes literal, if one starts here.
    fn quoted(&mut self) -> Result<Option<Token>, Issue> {
        let (mut raw, mut bytes, mut skip) = (false, false, 0);
        while let Some(c) = self.peek(skip).filter(|_| skip < 2) {
            match c {
                'r' | 'R' if !raw => raw = true,
                'b' | 'B' if !bytes => bytes = true,
                _ => break,
            }
            skip += 1;
        }
        let Some(quote) = self.peek(skip).filter(|c| matches!(c, '"' | '\'')) else { return Ok(None) };
        let start = self.at;
        self.at += skip;
        let triple = self.peek(1) == Some(quote) && self.peek(2) == Some(quote);
        let width = if triple { 3 } else { 1 };
        self.at += width;
        let mut text: Vec<u8> = Vec::new();
        loop {
            let Some(c) = self.peek(0) else {
                let text = format!("Syntax error: token recognition error at: '{}'", self.slice(start));
                return Err(Issue { at: start, text });
            };
            if (0..width).all(|i| self.peek(i) == Some(quote)) {
                self.at += width;
                break;
            }
            if !triple && matches!(c, '\n' | '\r') {
                return Err(
                    self.issue("Syntax error: token recognition error: line break in string".to_owned())
                );
            }
            self.at += 1;
            if c == '\\' && !raw {
                self.escape(start, bytes, &mut text)?;
            } else {
                text.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                if c == '\\'
                    && let Some(next) = self.peek(0)
                {
                    // In a raw string a backslash still keeps the next quote from closing it.
                    text.extend_from_slice(next.encode_utf8(&mut [0; 4]).as_bytes());
                    self.at += 1;
                }
            }
        }
        if bytes {
            return Ok(Some(Token::Bytes(text)));
        }
        let text = String::from_utf8(text).map_err(|_| self.issue("invalid string literal".to_owned()))?;
        Ok(Some(Token::String(text)))
    }

    fn escape(&mut self, start: usize, bytes: bool, text: &mut Vec<u8>) -> Result<(), Issue> {
        let bad = |_: &Self| Issue {
            at: start,
            text: "Syntax error: token recognition error: invalid escape".to_owned(),
        };
        let c = self.peek(0).ok_or_else(|| bad(self))?;
        self.at += 1;
        let simple = match c {
            'a' => Some('\u{7}'),
            'b' => Some('\u{8}'),
            'f' => Some('\u{c}'),
            'n' => Some('\n'),
            'r' => Some('\r'),
            't' => Some('\t'),
            'v' => Some('\u{b}'),
            '\\' | '\'' | '"' | '`' | '?' => Some(c),
            _ => None,
        };
        if let Some(simple) = simple {
            text.push(simple as u8);
            return Ok(());
        }
        let (radix, n_digits) = match c {
            'x' | 'X' => (16, 2),
            'u' if !bytes => (16, 4),
            'U' if !bytes => (16, 8),
            '0'..='3' => {
                self.at -= 1;
                (8, 3)
            }
            _ => return Err(bad(self)),
        };
        let mut code = 0_u32;
        for _ in 0..n_digits {
            let digit = self.peek(0).and_then(|c| c.to_digit(radix)).ok_or_else(|| bad(self))?;
            code = code.checked_mul(radix).and_then(|c| c.checked_add(digit)).ok_or_else(|| bad(self))?;
            self.at += 1;
        }
        match (bytes, u8::try_from(code), char::from_u32(code)) {
            (true, Ok(byte), _) => text.push(byte),
            (false, _, Some(c)) => text.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            _ => return Err(bad(self)),
        }
        Ok(())
    }

    fn issue(&self, text: String) -> Issue {
        Issue { at: self.at.min(self.chars.len()), text }
    }
}

struct Parser {
    tokens: Vec<(usize, Token)>,
    next: usize,
    nesting: u16,
    end: usize,
}

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next).map(|(_, token)| token)
    }

    fn at(&self) -> usize {
        self.tokens.get(self.next).map_or(self.end, |(at, _)| *at)
    }

    fn take(&mut self, sign: &str) -> bool {
        let hit = matches!(self.peek(), Some(Token::Sign(s)) if *s == sign);
        self.next += usize::from(hit);
        hit
    }

    fn expect(&mut self, sign: &str) -> Result<(), Issue> {
        if self.take(sign) { Ok(()) } else { Err(self.unexpected(&format!("'{sign}'"))) }
    }

    fn unexpected(&self, wanted: &str) -> Issue {
        let got = self.peek().map_or("<EOF>".to_owned(), Token::text);
        let last = self.next + 1 == self.tokens.len();
        let how = if wanted == "<EOF>" && last { "extraneous" } else { "mismatched" };
        Issue { at: self.at(), text: format!("Syntax error: {how} input '{got}' expecting {wanted}") }
    }

    fn node(&self, at: usize, kind: Kind) -> Result<Expr, Issue> {
        let mut depth = 0;
        kind.children(&mut |child| depth = depth.max(child.depth));
        if depth >= MAX_DEPTH {
            return Err(too_deep(at));
        }
        Ok(Expr { at, kind, depth: depth + 1 })
    }

    /// `a ? b : c`, or anything that binds tighter.
    fn expr(&mut self) -> Result<Expr, Issue> {
        self.nesting += 1;
        if self.nesting > MAX_DEPTH {
            return Err(too_deep(self.at()));
        }
        let condition = self.or()?;
        let at = self.at();
        let expr = if self.take("?") {
            let yes = self.or()?;
            self.expect(":")?;
            let no = self.expr()?;
            self.node(at, Kind::Conditional(Box::new([condition, yes, no])))?
        } else {
            condition
        };
        self.nesting -= 1;
        Ok(expr)
    }

    fn or(&mut self) -> Result<Expr, Issue> {
        let first = self.and()?;
        let at = self.at();
        let mut terms = vec![first];
        while self.take("||") {
            terms.push(self.and()?);
        }
        self.chain(at, terms, Kind::Or)
    }

    fn and(&mut self) -> Result<Expr, Issue> {
        let first = self.binary(1)?;
        let at = self.at();
        let mut terms = vec![first];
        while self.take("&&") {
            terms.push(self.binary(1)?);
        }
        self.chain(at, terms, Kind::And)
    }

    fn chain(&self, at: usize, mut terms: Vec<Expr>, make: fn(Vec<Expr>) -> Kind) -> Result<Expr, Issue> {
        match (terms.len(), terms.pop()) {
            (1, Some(only)) => Ok(only),
            (_, last) => {
                terms.extend(last);
                self.node(at, make(terms))
            }
        }
    }

    fn operator(&self) -> Option<Op> {
        Some(match self.peek()? {
            Token::Sign("+") => Op::Add,
            Token::Sign("-") => Op::Subtract,
            Token::Sign("*") => Op::Multiply,
            Token::Sign("/") => Op::Divide,
            Token::Sign("%") => Op::Modulo,
            Token::Sign("==") => Op::Equal,
            Token::Sign("!=") => Op::NotEqual,
            Token::Sign("<") => Op::Less,
            Token::Sign("<=") => Op::LessEqual,
            Token::Sign(">") => Op::Greater,
            Token::Sign(">=") => Op::GreaterEqual,
            Token::Word(word) if word == "in" => Op::In,
            _ => return None,
        })
    }

    fn binary(&mut self, strength: u8) -> Result<Expr, Issue> {
        let mut left = self.unary()?;
        while let Some(op) = self.operator().filter(|op| op.strength() >= strength) {
            let at = self.at();
            self.next += 1;
            let right = self.binary(op.strength() + 1)?;
            left = self.node(at, Kind::Binary { op, left: Box::new(left), right: Box::new(right) })?;
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Expr, Issue> {
        let at = self.at();
        for (sign, make) in [("!", Kind::Not as fn(Box<Expr>) -> Kind), ("-", Kind::Negate)] {
            let mut n = 0_usize;
            while self.take(sign) {
                n += 1;
            }
            if n == 0 {
                continue;
            }
            if sign == "-" && n == 1 && matches!(self.peek(), Some(Token::Int(_) | Token::Double(_))) {
                let literal = self.literal(at, true)?;
                return self.postfix(literal);
            }
            let operand = self.member()?;
            // A double negation says nothing.
            return if n.is_multiple_of(2) { Ok(operand) } else { self.node(at, make(Box::new(operand))) };
        }
        self.member()
    }

    fn member(&mut self) -> Result<Expr, Issue> {
        let primary = self.primary()?;
        self.postfix(primary)
    }

    fn postfix(&mut self, mut expr: Expr) -> Result<Expr, Issue> {
        loop {
            let at = self.at();
            if self.take(".") {
                let optional = self.take("?");
                let field = self.word()?;
                let open = self.at();
                if !optional && self.take("(") {
                    let args = self.args(")")?;
                    expr = self.method(open, expr, field, args)?;
                } else {
                    let access = if optional { Access::Optional } else { Access::Plain };
                    expr = self.node(at, Kind::Select { operand: Box::new(expr), field, access })?;
                }
            } else if self.take("[") {
                let optional = self.take("?");
                let index = self.expr()?;
                self.expect("]")?;
                expr =
                    self.node(at, Kind::Index { operand: Box::new(expr), index: Box::new(index), optional })?;
            } else {
                return Ok(expr);
            }
        }
    }

    fn word(&mut self) -> Result<String, Issue> {
        match self.peek().cloned() {
            Some(Token::Word(word)) if !matches!(word.as_str(), "in" | "true" | "false" | "null") => {
                self.next += 1;
                Ok(word)
            }
            _ => Err(self.unexpected("IDENTIFIER")),
        }
    }

    fn args(&mut self, close: &str) -> Result<Vec<Expr>, Issue> {
        let mut args = Vec::new();
        while !self.take(close) {
            if !args.is_empty() {
                self.expect(",")?;
                // Lists may end with a comma.
                if close == "]" && self.take(close) {
                    break;
                }
            }
            args.push(self.expr()?);
        }
        Ok(args)
    }

    fn primary(&mut self) -> Result<Expr, Issue> {
        let at = self.at();
        match self.peek().cloned() {
            Some(Token::Sign("(")) => {
                self.next += 1;
                let expr = self.expr()?;
                self.expect(")")?;
                Ok(expr)
            }
            Some(Token::Sign("[")) => {
                self.next += 1;
                let mut items = Vec::new();
                while !self.take("]") {
                    if !items.is_empty() {
                        self.expect(",")?;
                        if self.take("]") {
                            break;
                        }
                    }
                    let optional = self.take("?");
                    items.push((optional, self.expr()?));
                }
                self.node(at, Kind::List(items))
            }
            Some(Token::Sign("{")) => {
                self.next += 1;
                let mut entries = Vec::new();
                while !self.take("}") {
                    if !entries.is_empty() {
                        self.expect(",")?;
                        if self.take("}") {
                            break;
                        }
                    }
                    let optional = self.take("?");
                    let key = self.expr()?;
                    self.expect(":")?;
                    entries.push((optional, key, self.expr()?));
                }
                self.node(at, Kind::Map(entries))
            }
            Some(Token::Sign(".")) => {
                self.next += 1;
                let word = self.word()?;
                self.name(at, word)
            }
            Some(Token::Word(word)) => {
                self.next += 1;
                match word.as_str() {
                    "true" | "false" => self.node(at, Kind::Bool(word == "true")),
                    "null" => self.node(at, Kind::Null),
                    "in" => {
                        self.next -= 1;
                        Err(self.unexpected(EXPRESSION))
                    }
                    _ => self.name(at, word),
                }
            }
            Some(Token::Int(_) | Token::UInt(_) | Token::Double(_) | Token::String(_) | Token::Bytes(_)) => {
                self.literal(at, false)
            }
            _ => Err(self.unexpected(EXPRESSION)),
        }
    }

    fn literal(&mut self, at: usize, negative: bool) -> Result<Expr, Issue> {
        let token = self.peek().cloned();
        self.next += 1;
        let kind = match token {
            Some(Token::Int(text)) => {
                let signed = if negative { format!("-{text}") } else { text };
                int(&signed)
                    .map(Kind::Int)
                    .ok_or_else(|| Issue { at, text: "invalid int literal".to_owned() })?
            }
            Some(Token::UInt(text)) => {
                let value = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
                    Some(hex) => u64::from_str_radix(hex, 16),
                    None => text.parse(),
                };
                Kind::UInt(value.map_err(|_| Issue { at, text: "invalid uint literal".to_owned() })?)
            }
            Some(Token::Double(d)) => Kind::Double(if negative { -d } else { d }),
            Some(Token::String(s)) => Kind::String(s),
            Some(Token::Bytes(b)) => Kind::Bytes(b),
            _ => {
                self.next -= 1;
                return Err(self.unexpected("a literal"));
            }
        };
        self.node(at, kind)
    }

    /// A name: a variable, or a function if it is called.
    fn name(&mut self, at: usize, word: String) -> Result<Expr, Issue> {
        let open = self.at();
        if self.take("(") {
            let args = self.args(")")?;
            return self.function(open, word, args);
        }
        if names::is_reserved(&word) {
            return Err(Issue { at, text: format!("reserved identifier: {word}") });
        }
        self.node(at, Kind::Ident(word))
    }

    fn function(&mut self, at: usize, name: String, mut args: Vec<Expr>) -> Result<Expr, Issue> {
        if name != "has" || args.len() != 1 {
            return self.node(at, Kind::Call { target: None, name, args });
        }
        match args.pop() {
            Some(Expr { kind: Kind::Select { operand, field, access: Access::Plain }, .. }) => {
                self.node(at, Kind::Select { operand, field, access: Access::Test })
            }
            other => Err(Issue {
                at: other.map_or(at, |e| e.at),
                text: "invalid argument to has() macro".to_owned(),
            }),
        }
    }

    /// A call on a target, or one of the macros that look like it.
    fn method(&mut self, at: usize, target: Expr, name: String, mut args: Vec<Expr>) -> Result<Expr, Issue> {
        let n_args = args.len();
        let (make, n_names, has_filter) = match (name.as_str(), n_args) {
            ("all", 2) => (Make::All, 1, false),
            ("all", 3) => (Make::All, 2, false),
            ("exists", 2) => (Make::Exists, 1, false),
            ("exists", 3) => (Make::Exists, 2, false),
            ("exists_one", 2) => (Make::ExistsOne, 1, false),
            ("existsOne", 3) => (Make::ExistsOne, 2, false),
            ("map", 2) => (Make::Map, 1, false),
            ("map", 3) => (Make::Map, 1, true),
            ("filter", 2) => (Make::Filter, 1, false),
            ("sortBy", 2) => (Make::SortBy, 1, false),
            ("transformList", 3) => (Make::Map, 2, false),
            ("transformList", 4) => (Make::Map, 2, true),
            ("transformMap", 3) => (Make::TransformMap, 2, false),
            ("transformMap", 4) => (Make::TransformMap, 2, true),
            ("transformMapEntry", 3) => (Make::TransformMapEntry, 2, false),
            ("transformMapEntry", 4) => (Make::TransformMapEntry, 2, true),
            ("optMap" | "optFlatMap", 2) => {
                let body = args.pop();
                let var = simple_name(args.pop(), at)?;
                let Some(body) = body else { return Err(self.unexpected("arguments")) };
                let flat = name == "optFlatMap";
                let kind = Kind::OptMap { target: Box::new(target), name: var, body: Box::new(body), flat };
                return self.node(at, kind);
            }
            _ => return self.node(at, Kind::Call { target: Some(Box::new(target)), name, args }),
        };
        let Some(body) = args.pop() else { return Err(self.unexpected("arguments")) };
        let filter = if has_filter { args.pop() } else { None };
        let name2 = if n_names == 2 { Some(simple_name(args.pop(), at)?) } else { None };
        let name = simple_name(args.pop(), at)?;
        self.node(at, Kind::Loop(Box::new(Loop { make, range: target, name, name2, filter, body })))
    }
}

fn simple_name(arg: Option<Expr>, at: usize) -> Result<String, Issue> {
    match arg {
        Some(Expr { kind: Kind::Ident(name), .. }) => Ok(name),
        other => {
            Err(Issue { at: other.map_or(at, |e| e.at), text: "argument must be a simple name".to_owned() })
        }
    }
}

fn too_deep(at: usize) -> Issue {
    Issue { at, text: format!("expression recursion limit exceeded: {MAX_DEPTH}") }
}

fn int(text: &str) -> Option<i64> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text),
    };
    match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) => i64::from_str_radix(&format!("{sign}{hex}"), 16).ok(),
        None => text.parse().ok(),
    }
}

impl Kind {
    /// Visits the expressions directly below this one.
    pub(crate) fn children<'a>(&'a self, visit: &mut dyn FnMut(&'a Expr)) {
        match self {
            Self::Null
            | Self::Bool(_)
            | Self::Int(_)
            | Self::UInt(_)
            | Self::Double(_)
            | Self::String(_)
            | Self::Bytes(_)
            | Self::Ident(_) => {}
            Self::Select { operand, .. } => visit(operand),
            Self::Index { operand, index, .. } => {
                visit(operand);
                visit(index);
            }
            Self::Call { target, args, .. } => {
                target.iter().for_each(|t| visit(t));
                args.iter().for_each(visit);
            }
            Self::Not(x) | Self::Negate(x) => visit(x),
            Self::Binary { left, right, .. } => {
                visit(left);
                visit(right);
            }
            Self::And(terms) | Self::Or(terms) => terms.iter().for_each(visit),
            Self::Conditional(parts) => parts.iter().for_each(visit),
            Self::List(items) => items.iter().for_each(|(_, item)| visit(item)),
            Self::Map(entries) => entries.iter().for_each(|(_, key, value)| {
                visit(key);
                visit(value);
            }),
            Self::Loop(x) => {
                visit(&x.range);
                x.filter.iter().for_each(&mut *visit);
                visit(&x.body);
            }
            Self::OptMap { target, body, .. } => {
                visit(target);
                visit(body);
            }
        }
    }
}

impl Expr {
    /// Whether the expression mentions a variable of that name.
    pub(crate) fn mentions(&self, name: &str) -> bool {
        if matches!(&self.kind, Kind::Ident(ident) if ident == name) {
            return true;
        }
        let mut found = false;
        self.kind.children(&mut |child| found = found || child.mentions(name));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::{parse, render};

    #[track_caller]
    fn refuses(source: &str, expected: &str) {
        let issue = parse(source).expect_err(source);
        assert_eq!(render(source, std::slice::from_ref(&issue)), expected);
    }

    #[test]
    fn refusals_show_the_place() {
        refuses(
            "self.a ==",
            "ERROR: <input>:1:10: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}\n | self.a ==\n | .........^",
        );
        refuses("has(self)", "ERROR: <input>:1:5: invalid argument to has() macro\n | has(self)\n | ....^");
        refuses(
            "true\n&& namespace",
            "ERROR: <input>:2:4: reserved identifier: namespace\n | && namespace\n | ...^",
        );
        refuses(
            "self.all(1, true)",
            "ERROR: <input>:1:10: argument must be a simple name\n | self.all(1, true)\n | .........^",
        );
    }

    #[test]
    fn accepts_the_language() {
        for good in [
            "1 + 2 * 3 == 7 && !!true || -(-1) < 0x10 ? 'a' : \"b\"",
            "[1, 2u, 3.5e1, ?x][?0].orValue(null)",
            "{'a': 1, ?'b': x, }.?a[0].b",
            r#"r'\d+' + '''a"b''' + b'\x00\101' == "\u00e9\n""#,
            "self.a.all(x, x.b.exists_one(y, y > 0)) // the end",
            "self.a.sortBy(x, x.b)[0]",
            "self.m.transformMap(k, v, v > 0, v + 1)",
            ".self.optMap(x, x)",
        ] {
            parse(good).unwrap_or_else(|e| panic!("{}", render(good, &[e])));
        }
    }

    #[test]
    fn depth_is_bounded() {
        for deep in [
            format!("{}1{}", "(".repeat(10_000), ")".repeat(10_000)),
            format!("{}true", "!(".repeat(10_000)),
            "[".repeat(10_000),
            "{1:".repeat(10_000),
            format!("self{}", ".a".repeat(10_000)),
            vec!["1"; 10_000].join("+"),
            "a ? b : ".repeat(10_000),
            "f(".repeat(10_000),
            "a.b(".repeat(10_000),
            "x[".repeat(10_000),
        ] {
            assert!(parse(&deep).is_err());
        }
        assert!(parse(&vec!["true"; 10_000].join(" && ")).is_ok(), "chains are flat");
    }

    proptest::proptest! {
        #[test]
        fn never_panics(source in "[-a-c.0-9()\\[\\]{}?:,+*/%!&|<>='\" \\\\rbxu\n]{0,60}") {
            if let Err(issue) = parse(&source) {
                render(&source, &[issue]);
            }
        }
    }
}
