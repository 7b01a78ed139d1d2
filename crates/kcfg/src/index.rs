//! Newtypes for the indices of the graph.

macro_rules! index {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize)]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl $name {
            /// The index as a `usize`, to index a slice.
            pub fn get(self) -> usize {
                self.0 as usize
            }
        }

        impl From<usize> for $name {
            fn from(index: usize) -> Self {
                $name(u32::try_from(index).expect("more than 4 billion entries"))
            }
        }
    };
}

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
