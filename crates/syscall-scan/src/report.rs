//! The result of a scan as a section of a plan, or for people.
