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

/// Size in bytes of the kind and the size of a message.
const HEAD: usize = 8;

/// The connection ends too early.
const UNFINISHED: &str = "closed the connection in the middle of a message";

/// The kind of a greeting, and the size in bytes of its content.
const HELLO: (u32, u32) = (1, 36);

/// A connection to a device.
pub struct Wire<S> {
    stream: S,
    /// The bytes that are of no message yet.
    pending: Vec<u8>,
    /// A message that was taken back.
    returned: Option<Message>,
}

impl<S: Read + Write> Wire<S> {
    /// Takes a connection.
    pub fn new(stream: S) -> Wire<S> {
        Wire { stream, pending: Vec::new(), returned: None }
    }

    /// Returns the connection.
    pub fn stream(&mut self) -> &mut S {
        &mut self.stream
    }

    /// Receives a message; `None` at the end of the connection.
    ///
    /// # Errors
    /// If the connection fails, or the message is none of a device.
    pub fn receive(&mut self) -> Result<Option<Message>, String> {
        if let Some(message) = self.returned.take() {
            return Ok(Some(message));
        }
        if !self.fill(HEAD)? {
            return match self.pending.is_empty() {
                true => Ok(None),
                false => Err(UNFINISHED.into()),
            };
        }
        let word = |at: usize| number(&self.pending[at..at + 4]).unwrap_or(u32::MAX);
        let (kind, size) = (word(0), word(4));
        if size > MAX {
            return Err(format!("a message of {size} bytes; expected at most {MAX}"));
        }
        let end = HEAD + size as usize;
        if !self.fill(end)? {
            return Err(UNFINISHED.into());
        }
        let content = &self.pending[HEAD..end];
        let message = match kind {
            1 => hello(content),
            2 => number(content).map(Message::Request),
            3 => Some(Message::Memory(content.to_vec())),
            4 => number(content).map(Message::Loaded),
            _ => None,
        };
        let message = message.ok_or_else(|| {
            format!("a message of kind {kind} with {size} bytes, which is none of a device")
        })?;
        self.pending.drain(..end);
        Ok(Some(message))
    }

    /// Receives bytes until there are `size` of them. Returns whether there are before the end of the connection.
    fn fill(&mut self, size: usize) -> Result<bool, String> {
        let mut bytes = [0; 4096];
        while self.pending.len() < size {
            let part = (size - self.pending.len()).min(bytes.len());
            match self.stream.read(&mut bytes[..part]) {
                Ok(0) => return Ok(false),
                Ok(read) => self.pending.extend(&bytes[..read]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(format!("cannot receive: {error}")),
            }
        }
        Ok(true)
    }

    /// Takes a message back, so that it is the next one to be received.
    pub fn take_back(&mut self, message: Message) {
        self.returned = Some(message);
    }

    /// Skips everything up to the next greeting, which is then the next message to be received. It may be within a message that
    /// could not be received. Returns whether there is one before the end of the connection.
    ///
    /// # Errors
    /// If the connection fails.
    pub fn skip(&mut self) -> Result<bool, String> {
        if self.returned.is_some() {
            return Ok(true);
        }
        let start = [HELLO.0.to_le_bytes(), HELLO.1.to_le_bytes()].concat();
        loop {
            if let Some(at) = self.pending.windows(HEAD).position(|part| part == start) {
                self.pending.drain(..at);
                return Ok(true);
            }
            // The last bytes may be the first ones of the start.
            let rest = self.pending.len().saturating_sub(HEAD - 1);
            self.pending.drain(..rest);
            if !self.fill(self.pending.len() + 1)? {
                return Ok(false);
            }
        }
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
