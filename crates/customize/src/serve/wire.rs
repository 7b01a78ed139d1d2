//! The messages between a device and the server (`kcustom-rt/user/kcustom-wire.h`): frames of a kind and a size, 4 bytes each,
//! little-endian, and content.

use std::io::{ErrorKind, Read, Write};

/// Maximum size in bytes of the content of a message.
pub const MAX: u32 = 1 << 16;

/// A message of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// It begins: the build of its kernel (`struct kcustom_head`), and a number.
    Hello([u8; 32], u32),
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
    /// It has the greeting with this number.
    Ready(u32),
}

/// The kind of a greeting, and the size in bytes of its content.
const HELLO: (u32, u32) = (1, 36);

/// A connection to a device.
pub struct Wire<'s, S> {
    stream: &'s mut S,
    /// A message that was taken back.
    returned: Option<Message>,
}

impl<'s, S: Read + Write> Wire<'s, S> {
    /// Takes a connection.
    pub fn new(stream: &'s mut S) -> Wire<'s, S> {
        Wire { stream, returned: None }
    }

    /// Receives a message; `None` at the end of the connection.
    ///
    /// # Errors
    /// If the connection fails, or the message is none of a device.
    pub fn receive(&mut self) -> Result<Option<Message>, String> {
        if let Some(message) = self.returned.take() {
            return Ok(Some(message));
        }
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
        let message = match kind {
            1 => hello(&content),
            2 => number(&content).map(Message::Request),
            3 => Some(Message::Memory(content)),
            4 => number(&content).map(Message::Loaded),
            _ => None,
        };
        message.map(Some).ok_or_else(|| format!("a message of kind {kind} with {size} bytes, which is none"))
    }

    /// Takes a message back, so that it is the next one to be received.
    pub fn take_back(&mut self, message: Message) {
        self.returned = Some(message);
    }

    /// Skips what arrives up to the next greeting, which is then the next message to be received. Returns whether there is one
    /// before the end of the connection.
    ///
    /// # Errors
    /// If the connection fails.
    pub fn skip(&mut self) -> Result<bool, String> {
        if self.returned.is_some() {
            return Ok(true);
        }
        let wanted = [HELLO.0.to_le_bytes(), HELLO.1.to_le_bytes()].concat();
        let mut last = [0; 8];
        while last != wanted[..] {
            last.rotate_left(1);
            match self.stream.read(&mut last[7..]) {
                Ok(0) => return Ok(false),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => last.rotate_right(1),
                Err(error) => return Err(format!("cannot receive: {error}")),
            }
        }
        let mut content = [0; HELLO.1 as usize];
        self.stream.read_exact(&mut content).map_err(|error| format!("cannot receive: {error}"))?;
        self.returned = hello(&content);
        Ok(true)
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
            Answer::Ready(number) => (4, number.to_le_bytes().to_vec()),
        };
        let head = [kind.to_le_bytes(), (content.len() as u32).to_le_bytes()].concat();
        let sent = self.stream.write_all(&[head, content].concat()).and_then(|()| self.stream.flush());
        sent.map_err(|error| format!("cannot send: {error}"))
    }
}

/// Returns the number that is all of a content.
fn number(content: &[u8]) -> Option<u32> {
    content.try_into().map(u32::from_le_bytes).ok()
}

/// Returns a greeting.
fn hello(content: &[u8]) -> Option<Message> {
    let (build, rest) = content.split_first_chunk()?;
    Some(Message::Hello(*build, number(rest)?))
}

#[cfg(test)]
mod tests;
