//! A connection whose other end has to finish in time what it began.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepidle};

/// The time that a device has for a message, and for all messages of a request.
const PATIENCE: Duration = Duration::from_secs(10);

/// Time of silence after which the server asks whether the other end is still there.
const SILENCE: Duration = Duration::from_secs(60);

/// A connection.
pub struct Line<'s> {
    stream: &'s TcpStream,
    patience: Patience,
}

/// The time for which reading waits.
#[derive(Clone, Copy)]
enum Patience {
    /// As long as it takes.
    Endless,
    /// As long as it takes for the next byte.
    Begins,
    /// Until then.
    Ends(Instant),
}

impl<'s> Line<'s> {
    /// Takes a connection.
    ///
    /// # Errors
    /// If its options cannot be set.
    pub fn new(stream: &'s TcpStream) -> io::Result<Line<'s>> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        set_socket_keepalive(stream, true)?;
        set_tcp_keepidle(stream, SILENCE)?;
        Ok(Line { stream, patience: Patience::Endless })
    }

    /// From now on, waits for as long as it takes.
    pub fn wait_endlessly(&mut self) {
        self.patience = Patience::Endless;
    }

    /// From now on, waits for the first byte for as long as it takes, and for all others until some time after that.
    pub fn wait_for_message(&mut self) {
        self.patience = Patience::Begins;
    }
}

impl Read for Line<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let left = match self.patience {
            Patience::Ends(end) => Some(end.saturating_duration_since(Instant::now())),
            Patience::Endless | Patience::Begins => None,
        };
        if left.is_some_and(|left| left.is_zero()) {
            return Err(ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(left)?;
        let read = self.stream.read(bytes)?;
        if matches!(self.patience, Patience::Begins) {
            self.patience = Patience::Ends(Instant::now() + PATIENCE);
        }
        Ok(read)
    }
}

impl Write for Line<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}
