//! Self-contained HTML pages, which the commands of kshrink write.
//!
//! - [`Page`]: the frame of a page: policy, colours, type; [`Escaped`]: text in HTML;
//! - [`Explorer`]: a page with a treemap, a panel with details, and tables.
//!
//! The style, the script and the data are in the document itself, and its policy lets a browser load nothing from
//! anywhere.

mod explorer;
mod page;

pub use explorer::Explorer;
pub use page::{Escaped, Page};
