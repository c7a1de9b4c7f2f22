//! Ids and tokens that nobody can guess.

use std::fmt::Write as _;
use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

fn bytes<const COUNT: usize>() -> io::Result<[u8; COUNT]> {
    let mut bytes = [0; COUNT];
    // Up to 256 bytes come whole, once the kernel has any.
    let count = getrandom(&mut bytes, GetRandomFlags::empty())?;
    if count == COUNT { Ok(bytes) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A random UUID (version 4), the shape that Jupyter's clients expect of ids.
pub fn uuid() -> io::Result<String> {
    let mut bytes: [u8; 16] = bytes()?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let text = hexadecimal(&bytes);
    Ok([&text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..]].join("-"))
}

/// 256 random bits in hexadecimal.
pub fn token() -> io::Result<String> {
    Ok(hexadecimal(&bytes::<32>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_the_usual_shape_and_differ() {
        let id = uuid().unwrap();
        let lengths: Vec<_> = id.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12]);
        assert_eq!(&id[14..15], "4");
        assert_ne!(id, uuid().unwrap());
        assert_eq!(token().unwrap().len(), 64);
    }
}
