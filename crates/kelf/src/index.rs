//! Newtypes for indices, so that a section number cannot be used as a symbol number.

/// Defines a newtype for the numbers of one kind of item.
#[macro_export]
macro_rules! index {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize)]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl $name {
            /// Returns the index as a `usize`, to index a slice.
            pub fn get(self) -> usize {
                self.0 as usize
            }
        }

        impl From<usize> for $name {
            fn from(index: usize) -> Self {
                $name(u32::try_from(index).expect("more than 4 billion entries"))
            }
        }

        impl From<$name> for usize {
            fn from(index: $name) -> usize {
                index.get()
            }
        }
    };
}

index! {
    /// A section of one object: the ELF section number; 0 is the null section.
    SectionIndex
}
index! {
    /// A symbol of one object: the ELF symbol number; 0 is the null symbol.
    SymbolIndex
}
index! {
    /// An object of a program, in link order.
    ObjectIndex
}
index! {
    /// A global symbol of a program.
    GlobalIndex
}
index! {
    /// A function of a linked kernel, by ascending address.
    FunctionIndex
}
