//! Reading paths. In: text. Out: steps, or where and why it is not a path. The grammar has no nesting that a text
//! could drive deep: brackets end at the first `]`, a filter at the first `)` outside of quotes.

use serde_json::Value;

use super::{JsonPathError, SliceEnd, Step};

/// Far longer than any path in use; keeps the work in proportion.
pub(super) const MAX_LENGTH: usize = 64 * 1024;

/// Reads a whole text as one path.
pub(super) fn path(text: &str) -> Result<Vec<Step>, JsonPathError> {
    if text.len() > MAX_LENGTH {
        return Err(JsonPathError::TooLong { limit: MAX_LENGTH });
    }
    let mut parser = Parser { text, at: 0 };
    let steps = parser.steps()?;
    if parser.peek().is_some() { Err(parser.error("unexpected '}'")) } else { Ok(steps) }
}

/// Reads one path that ends at a `}`; gives its steps and the length of what was read, the brace included.
pub(super) fn path_in_braces(text: &str) -> Result<(Vec<Step>, usize), JsonPathError> {
    let mut parser = Parser { text, at: 0 };
    let steps = parser.steps()?;
    match parser.next() {
        Some('}') => Ok((steps, parser.at)),
        _ => Err(parser.error("unclosed action")),
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    /// Reads steps up to a `}` or the end of the text.
    fn steps(&mut self) -> Result<Vec<Step>, JsonPathError> {
        let mut steps = Vec::new();
        loop {
            if self.eat("[?(") {
                steps.push(self.filter()?);
                continue;
            }
            if self.eat("..") {
                if steps.last() == Some(&Step::Recursive) {
                    return Err(self.error("invalid multiple recursive descent"));
                }
                steps.push(Step::Recursive);
                if self.peek().is_some_and(is_alphanumeric) {
                    steps.push(self.field()?);
                }
                continue;
            }
            let Some(c) = self.peek() else { return Ok(steps) };
            match c {
                '}' => return Ok(steps),
                '\n' | '\r' => return Err(self.error("unclosed action")),
                // The object itself, which every path starts from.
                ' ' | '@' | '$' => self.skip(c),
                '[' => {
                    self.skip(c);
                    self.brackets(&mut steps)?;
                }
                '"' | '\'' => {
                    self.skip(c);
                    let text = self.quoted(c)?;
                    steps.push(Step::Text(Value::String(text)));
                }
                '.' => {
                    self.skip(c);
                    steps.push(self.field()?);
                }
                '+' | '-' => steps.push(self.number()?),
                c if c.is_numeric() => steps.push(self.number()?),
                c if is_alphanumeric(c) => steps.push(self.word()),
                _ => return Err(self.error("unrecognized character in action")),
            }
        }
    }

    /// A field name or `*`, after the dot.
    fn field(&mut self) -> Result<Step, JsonPathError> {
        let start = self.at;
        while let Some(c) = self.peek() {
            if c == '\\' {
                self.skip(c);
                self.next().ok_or_else(|| self.error("unclosed action"))?;
            } else if is_terminator(c) {
                break;
            } else {
                self.skip(c);
            }
        }
        Ok(match self.since(start) {
            "*" => Step::Wildcard,
            name => Step::Field(name.replace('\\', "")),
        })
    }

    /// A truth value, or a word such as `range`.
    fn word(&mut self) -> Step {
        let start = self.at;
        while let Some(c) = self.peek().filter(|c| !is_terminator(*c)) {
            self.skip(c);
        }
        match self.since(start) {
            "true" => Step::Constant(Value::Bool(true)),
            "false" => Step::Constant(Value::Bool(false)),
            word => Step::Identifier(word.to_owned()),
        }
    }

    fn number(&mut self) -> Result<Step, JsonPathError> {
        let start = self.at;
        if let Some(sign @ ('+' | '-')) = self.peek() {
            self.skip(sign);
        }
        while let Some(c) = self.peek().filter(|c| *c == '.' || c.is_numeric()) {
            self.skip(c);
        }
        let text = self.since(start);
        let whole = text.parse::<i64>().map(Value::from).ok();
        // Only digits and dots can be here, so what parses as a fraction is finite or overflows to infinity.
        let fraction = || text.parse::<f64>().ok().and_then(serde_json::Number::from_f64).map(Value::Number);
        match whole.or_else(fraction) {
            Some(number) => Ok(Step::Constant(number)),
            None => Err(self.error("cannot parse number")),
        }
    }

    /// What is between brackets, after the opening one.
    fn brackets(&mut self, steps: &mut Vec<Step>) -> Result<(), JsonPathError> {
        let start = self.at;
        let length = self.rest().find([']', '\n']).filter(|end| self.rest()[*end..].starts_with(']'));
        let Some(length) = length else { return Err(self.error("unterminated array")) };
        self.at += length;
        let inside = self.since(start);
        self.skip(']');
        if inside.contains(',') {
            let parts = inside.split(',').map(|part| self.selector(part.trim_matches(' ')));
            steps.push(Step::Union(parts.collect::<Result<_, _>>()?));
        } else {
            steps.extend(self.selector(inside)?);
        }
        Ok(())
    }

    /// One key, index or slice between brackets.
    fn selector(&self, text: &str) -> Result<Vec<Step>, JsonPathError> {
        if text == "*" {
            return Ok(vec![Step::Slice { from: None, to: SliceEnd::Open, step: None }]);
        }
        for quote in ['\'', '"'] {
            let key = text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
            if let Some(key) = key.filter(|key| !key.contains(quote)) {
                // A quoted key is read as what would follow a dot: an unescaped dot inside starts another field.
                let dotted = format!(".{key}");
                let mut parser = Parser { text: &dotted, at: 0 };
                let steps = parser.steps()?;
                return if parser.peek().is_none() { Ok(steps) } else { Err(self.error("unexpected '}'")) };
            }
        }
        let mut parts = text.split(':');
        let number = |part: Option<&str>| match part {
            None | Some("") => Ok(None),
            Some(digits) if digits.starts_with('+') => Err(self.error("invalid array index")),
            Some(digits) => digits.parse::<i64>().map(Some).map_err(|_| self.error("invalid array index")),
        };
        let from = number(parts.next())?;
        let end = parts.next();
        let step = number(parts.next())?;
        if parts.next().is_some() {
            return Err(self.error("invalid array index"));
        }
        let to = match (end, number(end)?) {
            (None, _) => SliceEnd::Single,
            (Some(_), None) => SliceEnd::Open,
            (Some(_), Some(to)) => SliceEnd::At(to),
        };
        Ok(vec![Step::Slice { from, to, step }])
    }

    /// A filter, after its `[?(`.
    fn filter(&mut self) -> Result<Step, JsonPathError> {
        let start = self.at;
        let mut quote = None;
        let mut closed = false;
        let mut before = '(';
        loop {
            let Some(c) = self.next().filter(|c| *c != '\n') else {
                return Err(self.error("unterminated filter"));
            };
            match (c, quote) {
                ('"' | '\'', None) => quote = Some(c),
                (c, Some(open)) if c == open && before != '\\' => closed = true,
                (')', _) if quote.is_some() == closed => break,
                _ => {}
            }
            before = c;
        }
        let inside = &self.text[start..self.at - 1];
        if !self.eat("]") {
            return Err(self.error("unclosed array expect ]"));
        }
        let is_operator = |c: char| "!<>=".contains(c);
        let Some(place) = inside.find(is_operator).filter(|place| *place > 0) else {
            return Ok(Step::Exists(path(inside)?));
        };
        let (left, rest) = inside.split_at(place);
        let n_operator = rest.find(|c: char| !is_operator(c)).unwrap_or(rest.len());
        let (operator, right) = rest.split_at(n_operator);
        match (operator.len(), right) {
            // A lone sign at the end belongs to the name before it.
            (1, "") => Ok(Step::Exists(path(inside)?)),
            (_, "") => Err(self.error("filter has nothing to compare with")),
            _ => Ok(Step::Filter { left: path(left)?, operator: operator.to_owned(), right: path(right)? }),
        }
    }

    /// Quoted text, after the opening quote.
    fn quoted(&mut self, quote: char) -> Result<String, JsonPathError> {
        let start = self.at;
        let mut before = quote;
        loop {
            let Some(c) = self.next().filter(|c| *c != '\n') else {
                return Err(self.error("unterminated quoted string"));
            };
            if c == quote && before != '\\' {
                break;
            }
            before = c;
        }
        unquote(&self.text[start..self.at - quote.len_utf8()], quote)
            .ok_or_else(|| self.error("invalid escape in quoted string"))
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn since(&self, start: usize) -> &'a str {
        self.text.get(start..self.at).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.skip(c);
        Some(c)
    }

    fn skip(&mut self, c: char) {
        self.at += c.len_utf8();
    }

    fn eat(&mut self, prefix: &str) -> bool {
        let found = self.rest().starts_with(prefix);
        if found {
            self.at += prefix.len();
        }
        found
    }

    fn error(&self, problem: &'static str) -> JsonPathError {
        JsonPathError::Syntax { at: self.at, problem }
    }
}

/// Resolves the escapes of a Go string literal.
fn unquote(text: &str, quote: char) -> Option<String> {
    if !text.contains('\\') {
        return Some(text.to_owned());
    }
    // Bytes, since `\xff` is one.
    let mut bytes = Vec::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            bytes.extend(c.encode_utf8(&mut [0; 4]).bytes());
            continue;
        }
        let plain = |byte: u8| Some(vec![byte]);
        let code_point = |code: u32| char::from_u32(code).map(|c| c.to_string().into_bytes());
        let resolved = match chars.next()? {
            'a' => plain(7),
            'b' => plain(8),
            'f' => plain(12),
            'n' => plain(b'\n'),
            'r' => plain(b'\r'),
            't' => plain(b'\t'),
            'v' => plain(11),
            '\\' => plain(b'\\'),
            c if c == quote => plain(c as u8),
            'x' => hex(&mut chars, 2).and_then(|code| u8::try_from(code).ok()).and_then(plain),
            'u' => hex(&mut chars, 4).and_then(code_point),
            'U' => hex(&mut chars, 8).and_then(code_point),
            c @ '0'..='7' => octal(&mut chars, c).and_then(|code| u8::try_from(code).ok()).and_then(plain),
            _ => None,
        };
        bytes.extend(resolved?);
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn hex(chars: &mut std::str::Chars<'_>, n_digits: usize) -> Option<u32> {
    (0..n_digits).try_fold(0_u32, |sum, _| Some((sum << 4) | chars.next()?.to_digit(16)?))
}

fn octal(chars: &mut std::str::Chars<'_>, first: char) -> Option<u32> {
    (0..2).try_fold(first.to_digit(8)?, |sum, _| Some((sum << 3) | chars.next()?.to_digit(8)?))
}

fn is_terminator(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}')
}

fn is_alphanumeric(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}
