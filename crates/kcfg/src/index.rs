//! Newtypes for the indices of the graph.

use kelf::index;

index! {
    /// A node: a basic block or a chunk.
    NodeId
}
index! {
    /// A function of compiler-made code.
    FunctionId
}
index! {
    /// A symbol of the program.
    SymbolId
}
index! {
    /// An input section that is part of the program.
    SectionId
}
index! {
    /// A jump table of a `switch`.
    TableId
}
