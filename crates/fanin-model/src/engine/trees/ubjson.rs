//! Universal Binary JSON as XGBoost writes it: big-endian, with typed lists of a known length.

use super::value::{MAX_DEPTH, Value, is_skipped};
use crate::LoadError;

struct Reader<'a> {
    all: &'a [u8],
    at: usize,
    depth: usize,
}

pub(super) fn read(bytes: &[u8]) -> Result<Value, LoadError> {
    let mut reader = Reader { all: bytes, at: 0, depth: 0 };
    let marker = reader.byte()?;
    let value = reader.value(marker)?;
    match reader.at == bytes.len() {
        true => Ok(value),
        false => Err(reader.broken("something follows the document")),
    }
}

impl<'a> Reader<'a> {
    fn broken(&self, what: impl Into<String>) -> LoadError {
        LoadError::broken(format!("byte {}", self.at), what)
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], LoadError> {
        let end = self.at.checked_add(count).filter(|end| *end <= self.all.len());
        let end = end.ok_or_else(|| self.broken("the document ends here; the file is cut off"))?;
        let taken = &self.all[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, LoadError> {
        self.take(1).map(|byte| byte[0])
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], LoadError> {
        // `take` gives as many as are asked for.
        self.take(N).map(|bytes| bytes.first_chunk().copied().unwrap_or([0; N]))
    }

    fn number(&mut self, marker: u8) -> Result<f64, LoadError> {
        Ok(match marker {
            b'i' => f64::from(i8::from_be_bytes(self.array()?)),
            b'U' => f64::from(self.byte()?),
            b'I' => f64::from(i16::from_be_bytes(self.array()?)),
            b'l' => f64::from(i32::from_be_bytes(self.array()?)),
            b'L' => i64::from_be_bytes(self.array()?) as f64,
            b'd' => f64::from(f32::from_be_bytes(self.array()?)),
            b'D' => f64::from_be_bytes(self.array()?),
            _ => return Err(self.broken(format!("marker {:?} is no number's", char::from(marker)))),
        })
    }

    fn length(&mut self) -> Result<usize, LoadError> {
        let marker = self.byte()?;
        let length = self.number(marker)?;
        if length < 0.0 || length > self.all.len() as f64 {
            return Err(self.broken(format!("a length of {length}, in {} bytes", self.all.len())));
        }
        Ok(length as usize)
    }

    fn text(&mut self) -> Result<String, LoadError> {
        let length = self.length()?;
        let bytes = self.take(length)?;
        std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| self.broken("a string is not UTF-8"))
    }

    fn value(&mut self, marker: u8) -> Result<Value, LoadError> {
        Ok(match marker {
            b'{' => self.nested(Reader::object)?,
            b'[' => self.nested(Reader::list)?,
            b'S' => Value::Text(self.text()?),
            b'C' => Value::Text(char::from(self.byte()?).into()),
            b'T' => Value::Bool(true),
            b'F' => Value::Bool(false),
            b'Z' | b'N' => Value::Null,
            _ => Value::Number(self.number(marker)?),
        })
    }

    fn nested(&mut self, read: fn(&mut Self) -> Result<Value, LoadError>) -> Result<Value, LoadError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.broken(format!("more than {MAX_DEPTH} levels")));
        }
        let value = read(self)?;
        self.depth -= 1;
        Ok(value)
    }

    fn object(&mut self) -> Result<Value, LoadError> {
        let mut all = Vec::new();
        while self.all.get(self.at) != Some(&b'}') {
            let key = self.text()?;
            let marker = self.byte()?;
            let value = self.value(marker)?;
            if !is_skipped(&key) {
                all.push((key, value));
            }
        }
        self.at += 1;
        Ok(Value::Object(all))
    }

    fn list(&mut self) -> Result<Value, LoadError> {
        let kind = if self.all.get(self.at) == Some(&b'$') {
            self.at += 1;
            Some(self.byte()?)
        } else {
            None
        };
        let count = if self.all.get(self.at) == Some(&b'#') {
            self.at += 1;
            Some(self.length()?)
        } else {
            None
        };
        match (kind, count) {
            (Some(kind @ (b'i' | b'U' | b'I' | b'l' | b'L' | b'd' | b'D')), Some(count)) => {
                let mut all = Vec::with_capacity(count);
                for _ in 0..count {
                    all.push(self.number(kind)?);
                }
                Ok(Value::Numbers(all))
            }
            (Some(kind), _) => Err(self.broken(format!("a list of {:?}", char::from(kind)))),
            (None, Some(count)) => {
                let mut all = Vec::new();
                for _ in 0..count {
                    let marker = self.byte()?;
                    all.push(self.value(marker)?);
                }
                Ok(Reader::numbers(all))
            }
            (None, None) => {
                let mut all = Vec::new();
                loop {
                    match self.byte()? {
                        b']' => break Ok(Reader::numbers(all)),
                        marker => all.push(self.value(marker)?),
                    }
                }
            }
        }
    }

    fn numbers(all: Vec<Value>) -> Value {
        if all.is_empty() || !all.iter().all(|value| matches!(value, Value::Number(_))) {
            return Value::List(all);
        }
        let number = |value: &Value| match value {
            Value::Number(number) => *number,
            _ => f64::NAN,
        };
        Value::Numbers(all.iter().map(number).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_format_has_and_refuses_the_rest() {
        let bytes = b"{L\0\0\0\0\0\0\0\x01a[$d#L\0\0\0\0\0\0\0\x01\x3f\x80\0\0i\x01bT}";
        let expected =
            Value::Object(vec![("a".to_owned(), Value::Numbers(vec![1.0])), ("b".to_owned(), Value::Bool(true))]);
        assert_eq!(read(bytes).expect("it is fine"), expected);
        for end in 0..bytes.len() {
            assert!(read(&bytes[..end]).is_err(), "cut off at {end}");
        }
        // A length that the file cannot hold allocates nothing.
        assert!(read(b"[$d#L\x0f\xff\xff\xff\xff\xff\xff\xff").is_err());
        assert!(read(&[b'['; 100_000]).is_err());
    }
}
