//! The messages between a device and the server: frames of a kind and a size, 4 bytes each, little-endian, and content.

use std::io::{ErrorKind, Read, Write};

/// Maximum size in bytes of the content of a message.
pub const MAX: u32 = 1 << 16;

/// A message of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// The build of its kernel (`struct kcustom_head`).
    Build([u8; 32]),
    /// It wants code for the socket at this address.
    Request(u32),
    /// Memory of the kernel; empty if it cannot be read.
    Memory(Vec<u8>),
    /// It loaded the code, or failed with an error number.
    Loaded(u32),
}

/// A message of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It wants the memory at an address, so many bytes.
    Read(u32, u32),
    /// The code.
    Code(Vec<u8>),
    /// There is no code, with the reason.
    None(String),
}

/// A connection to a device.
pub struct Wire<'s, S> {
    stream: &'s mut S,
}

impl<'s, S: Read + Write> Wire<'s, S> {
    /// Takes a connection.
    pub fn new(stream: &'s mut S) -> Wire<'s, S> {
        Wire { stream }
    }

    /// Receives a message; `None` at the end of the connection.
    ///
    /// # Errors
    /// If the connection fails, or the message is none of a device.
    pub fn receive(&mut self) -> Result<Option<Message>, String> {
        let mut head = [0; 8];
        let mut filled = 0;
        while filled < head.len() {
            match self.stream.read(&mut head[filled..]) {
                Ok(0) if filled == 0 => return Ok(None),
                Ok(0) => return Err("closed the connection in the middle of a message".into()),
                Ok(read) => filled += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(format!("cannot receive: {error}")),
            }
        }
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (kind, size) = (word(0), word(4));
        if size > MAX {
            return Err(format!("a message of {size} bytes; expected at most {MAX}"));
        }
        let mut content = vec![0; size as usize];
        self.stream.read_exact(&mut content).map_err(|error| format!("cannot receive: {error}"))?;
        let number = |content: &[u8]| content.try_into().map(u32::from_le_bytes).ok();
        let message = match kind {
            1 => content.try_into().ok().map(Message::Build),
            2 => number(&content).map(Message::Request),
            3 => Some(Message::Memory(content)),
            4 => number(&content).map(Message::Loaded),
            _ => None,
        };
        message.map(Some).ok_or_else(|| format!("a message of kind {kind} with {size} bytes, which is none"))
    }

    /// Sends a message.
    ///
    /// # Errors
    /// If the connection fails.
    pub fn send(&mut self, answer: &Answer) -> Result<(), String> {
        let (kind, content) = match answer {
            Answer::Read(address, size) => (1u32, [address.to_le_bytes(), size.to_le_bytes()].concat()),
            Answer::Code(code) => (2, code.clone()),
            Answer::None(why) => (3, why.clone().into_bytes()),
        };
        let head = [kind.to_le_bytes(), (content.len() as u32).to_le_bytes()].concat();
        let sent = self.stream.write_all(&[head, content].concat()).and_then(|()| self.stream.flush());
        sent.map_err(|error| format!("cannot send: {error}"))
    }
}

#[cfg(test)]
mod tests;
