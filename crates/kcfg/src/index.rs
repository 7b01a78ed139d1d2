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
    InputId
}
index! {
    /// A section of the program for lowering. A lifted graph has one for each input section, in the same order.
    SectionId
}
index! {
    /// A jump table of a `switch`.
    TableId
}
